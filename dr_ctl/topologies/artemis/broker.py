"""An Artemis broker as one look has shown it, whatever joins it to its peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from dr_ctl.topologies.artemis.document_queue import IN_USER, Papers
from dr_ctl.topologies.artemis.fence import DoorsAndRoles
from dr_ctl.topologies.artemis.operations import ArtemisRequests
from dr_ctl.topologies.common.view import Broker


@dataclass(frozen=True, slots=True)
class ArtemisBroker(Broker):
    """An Artemis broker as it answered."""

    @property
    def fence(self) -> DoorsAndRoles:
        return DoorsAndRoles(self)

    @property
    def document_queue(self) -> Papers:
        """The way in which documents of dr-ctl are kept at it."""
        return IN_USER

    @property
    def requests(self) -> ArtemisRequests:
        return ArtemisRequests(self.broker, self.document_queue)


B_co = TypeVar("B_co", bound=ArtemisBroker, covariant=True)
