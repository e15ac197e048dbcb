"""The screen of a run: a subscriber to its events, on standard error.

Always says where the run is, whether stopping is still safe, and how a wait stands. On a terminal the line of a wait is
renewed in place; elsewhere lines are plain.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

from dr_ctl.core.notation import duration, line
from dr_ctl.core.system import growing_s
from dr_ctl.telemetry.events import Event, Notice, StepEnded, StepStarted, WaitProgress

_PLAIN_EVERY_S = 1.0
_STYLES = {"done": "green", "not needed": "dim", "refused": "red", "unknown": "yellow"}


class Screen:
    """Shows events as they come. Standard error never raises (`streams.py`): a closed terminal stops no run."""

    def __init__(self, *, color: bool) -> None:
        self._console = Console(file=sys.stderr, no_color=not color, highlight=False, markup=False, soft_wrap=True)
        self._status: Status | None = None
        self._said_at = float("-inf")

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted():
                safe = "Ctrl-C undoes" if event.safe_to_stop else "do not stop"
                self._print(f"[{event.number}/{event.of}] {event.verb}: {event.about}  ({safe})", style="bold")
            case StepEnded():
                self._clear()
                took = f"  ({duration(event.took_s)})" if event.took_s >= 0.001 else ""  # noqa: PLR2004
                undone = f"{event.verb}: " if event.verb.startswith("undo ") else ""
                self._print(f"    {undone}{event.outcome}: {event.text}{took}", style=_STYLES[event.outcome])
            case WaitProgress():
                self._wait(event)
            case Notice():
                self._print(f"    {event.text}", style="yellow")

    def _wait(self, event: WaitProgress) -> None:
        text = f"    {event.about}"
        if event.depth is not None or event.left_s is None:
            text += f": {'not known' if event.depth is None else event.depth}"
        if event.rate is not None and round(event.rate):
            text += f", {event.rate:.0f}/s" if event.rate > 0 else f", growing by {-event.rate:.0f}/s"
        if event.left_s is not None:
            text += f", {duration(event.left_s)} to go"
        if event.outage_s is not None:
            text += f"; clients out for {event.outage_s:.1f} s"
        if event.why_not_moving:
            text += f"; {event.why_not_moving}"
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status(line(text))
                self._status.start()
            else:
                self._status.update(line(text))
        elif growing_s() - self._said_at >= _PLAIN_EVERY_S:
            self._said_at = growing_s()
            self._print(text)

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(line(text), style=style)

    def _clear(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


@contextmanager
def telling(*, color: bool, quiet: bool) -> Iterator[Callable[[str], None]]:
    """On a terminal a line that says what is done meanwhile; nothing elsewhere."""
    console = Console(file=sys.stderr, no_color=not color, highlight=False, markup=False)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda text: status.update(line(text))
