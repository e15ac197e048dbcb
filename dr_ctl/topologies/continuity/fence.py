"""A fence by the plugin, which opens and closes all client doors of its broker at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.artemis.document_queue import Operation
from dr_ctl.topologies.artemis.fence import DoorsAndRoles
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.view import Acceptor, Peer
from dr_ctl.topologies.console.requests import request

if TYPE_CHECKING:
    from dr_ctl.topologies.continuity.view import SiteView

# How long the plugin waits for its peer to be drained before it delivers anyway: short where the gate has shown that it
# is, or nothing can come any more. The plugin itself takes the peer for drained only once all of its queues were empty
# in one moment, which clients that are let in meanwhile keep from coming: their acknowledgements go there.
WAITS_MS: Final = {Peer.DRAINED: 1_000, Peer.CLOSED: 20_000, Peer.NOT_DRAINED: 5_000, Peer.AWAY: 1_000}
# The one call that opens or closes all client doors of a site's broker.
ACTIVATE_SITE: Final = "activateSite(java.lang.Long)"
DEACTIVATE_SITE: Final = "deactivateSite()"


class Plugin(DoorsAndRoles):
    view: SiteView

    @property
    def open(self) -> bool:
        """Clients may get in as soon as the plugin is activated, delivering or not."""
        service = self.view.service
        return any(door.started for door in self.view.doors) or (service is not None and service.activated)

    @property
    def boots_closed(self) -> bool | None:
        """The plugin closes its doors at every start; whether it opens them again when the peer talks, it keeps."""
        return None

    def opening(self, doors: Iterable[Acceptor], peer: Peer, when: str | None = None) -> tuple[Call, ...]:
        if not (list(doors) or self.view.half_open):
            return ()
        return (self._call(Goal.OPEN, (ACTIVATE_SITE, (WAITS_MS[peer],)), "activate the site", when),)

    def closing(self, doors: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        activated = self.view.service is not None and self.view.service.activated
        if not (list(doors) or activated):
            return ()
        return (self._call(Goal.CLOSE, (DEACTIVATE_SITE, ()), "deactivate the site", when),)

    def holds(self, call: Call) -> bool | None:
        match call.goal:
            case Goal.OPEN if call.thing == ALL:
                return self.view.delivers and all(door.started for door in self.view.doors)
            case Goal.CLOSE if call.thing == ALL:
                return not self.open
        return super().holds(call)

    def _call(self, goal: Goal, operation: Operation, about: str, when: str | None) -> Call:
        """The plugin opens and closes all client doors of its broker at once."""
        bean = self.view.service.bean if self.view.service is not None else ""
        return call(self.view, goal, ALL, request(bean, *operation), about, when)
