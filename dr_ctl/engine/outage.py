"""How long a run keeps clients out, and how long it may: the limit of `--max-outage`."""

from dr_ctl.core.clock import Clock
from dr_ctl.engine.history import fenced_at
from dr_ctl.engine.journal import Journal


class OutTooLong(Exception):
    """Clients have been out for longer than was allowed, and all can still be undone."""


class Outage:
    """How long a run has kept clients out, from the first call of its fence, and how long it may. A resumed run counts
    the time since its predecessor's fence too, but has the whole limit anew; otherwise a late resume could only undo.
    Not `known` of a lost site: clients are out since the loss, and nobody wrote that moment down."""

    def __init__(self, clock: Clock, journal: Journal, limit_s: float | None, *, known: bool) -> None:
        self._clock, self.limit_s, self._known = clock, limit_s, known
        self._since: float | None = None
        self._counted_from: float | None = None
        if known and (fenced := fenced_at(list(journal.entries()))) is not None:
            self._counted_from = clock.monotonic()
            self._since = self._counted_from - (clock.now() - fenced).total_seconds()

    def begins(self) -> None:
        if self._known and self._since is None:
            self._since = self._counted_from = self._clock.monotonic()

    def ends(self) -> None:
        self._since = None

    def so_far_s(self) -> float | None:
        """Returns None while clients are served."""
        return self._clock.monotonic() - self._since if self._since is not None else None

    def left_s(self) -> float | None:
        """Returns None without a limit, and before the outage begins."""
        if self.limit_s is None or self._since is None or self._counted_from is None:
            return None
        return self.limit_s - (self._clock.monotonic() - self._counted_from)
