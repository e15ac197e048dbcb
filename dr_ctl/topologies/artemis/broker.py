"""What one look at an Artemis broker told, whatever joins it to its peer: how it is asked to do what a recipe means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from dr_ctl.engine.plan import Call
from dr_ctl.topologies.artemis import lasting
from dr_ctl.topologies.artemis.operations import ArtemisRequests
from dr_ctl.topologies.artemis.papers import IN_USER, Papers
from dr_ctl.topologies.common.view import Broker


@dataclass(frozen=True, slots=True)
class ArtemisBroker(Broker):
    """One Artemis broker as it answered."""

    @property
    def papers(self) -> Papers:
        """How documents of dr-ctl are kept at it."""
        return IN_USER

    @property
    def requests(self) -> ArtemisRequests:
        return ArtemisRequests(self.broker, self.papers)

    def shutting_out(self, when: str | None = None) -> list[Call]:
        return lasting.shut_out(self, when)

    def admitting(self, when: str | None = None) -> list[Call]:
        return lasting.let_in(self, when)


B_co = TypeVar("B_co", bound=ArtemisBroker, covariant=True)
