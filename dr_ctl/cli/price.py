"""What a failover may cost, from the last samples of the history: contacts no broker, needs neither Java nor Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from dr_ctl.cli.objectives import objectives
from dr_ctl.core.clock import Clock
from dr_ctl.core.model import Finding, Json, Role
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.roles import error
from dr_ctl.rpo.bounds import Bounds, bounds
from dr_ctl.settings.model import Installation


class FailoverPrice:
    """Implements `Price` for one lost site. Read anew each time: what may be lost grows while the site may live."""

    def __init__(self, installation: Installation, lost: str, clock: Clock) -> None:
        self.lost = lost
        self._installation, self._clock = installation, clock
        self._down_since: datetime | None = None

    def saw(self, role: Role) -> None:
        """Note what a look told: a site that is down sends nothing any more, so its price grows no further."""
        if role is Role.DOWN and self._down_since is None:
            self._down_since = self._clock.now()

    def bounds(self) -> Mapping[str, Json]:
        return self._now().as_json()

    def findings(self) -> Sequence[Finding]:
        return self._now().findings

    def too_high(self, ask: Ask) -> Finding | None:
        reasons = self._now().exceeds(objectives(self._installation), ask.accept_loss)
        if not reasons:
            return None
        at_most = self._now().lost.at_most
        accepting = "unknown" if at_most is None else str(at_most)
        remedy = f"Wait for {self.lost}, or add --accept-loss {accepting}."
        return error("DR-LOSS-001", "; ".join(reasons), remedy)

    def _now(self) -> Bounds:
        settings = self._installation.settings
        return bounds(
            self._installation.path(settings.history.path),
            site=self.lost,
            now=self._down_since or self._clock.now(),
            objectives=objectives(self._installation),
            include=settings.queues.include,
            exclude=settings.queues.exclude,
            pairs=[broker.name for broker in settings.sites[self.lost].brokers],
        )
