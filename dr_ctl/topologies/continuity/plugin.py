"""What is the plugin's own: it opens and closes all client listeners at once, and leaves documents in a filter
alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call
from dr_ctl.jolokia.values import Fields, parts
from dr_ctl.topologies.artemis.documents import CREATE_FILTERED, UPDATE_FILTERED, BrokerStore, Operation
from dr_ctl.topologies.artemis.fence import ListenersAndRoles
from dr_ctl.topologies.common.calls import call, request
from dr_ctl.topologies.common.names import OWN
from dr_ctl.topologies.common.view import Acceptor, Peer

if TYPE_CHECKING:
    from dr_ctl.topologies.continuity.view import SiteView

_WORD: Final = "dr_ctl_says"
_HELD: Final = re.compile(rf"{_WORD} = '(.*)'", re.DOTALL)
# How long the plugin waits for its peer to be drained before it delivers anyway: short where the gate has shown that it
# is, or nothing can come any more. The plugin itself takes the peer for drained only once all of its queues were empty
# in one moment, which clients that are let in meanwhile keep from coming: their acknowledgements go there.
WAITS_MS: Final = {Peer.DRAINED: 1_000, Peer.CLOSED: 20_000, Peer.NOT_DRAINED: 5_000, Peer.AWAY: 1_000}
# The one call that opens or closes all client listeners of a site's broker.
ACTIVATE_SITE: Final = "activateSite(java.lang.Long)"
DEACTIVATE_SITE: Final = "deactivateSite()"


@dataclass(frozen=True)
class InFilter(BrokerStore):
    """`prefix` is the plugin's own for its commands: addresses that contain it carry no flow."""

    prefix: str
    attributes = ("Name", "Filter")

    def create(self, name: str, text: str, *, kind: str | None = None) -> Operation:
        address = f"{kind or name}.{self.prefix}"
        return CREATE_FILTERED, (address, "ANYCAST", name, _filter(text), True, 0, False, True)

    def update(self, name: str, text: str, *, kind: str) -> Operation:
        del kind
        return UPDATE_FILTERED, (name, "ANYCAST", _filter(text), 0, False, False, *(None,) * 6)

    def probe(self, name: str) -> Operation:
        # The queue is not durable: a queue that is not durable never becomes a flow, whatever its address.
        return CREATE_FILTERED, (name, "ANYCAST", name, None, False, -1, False, True)

    def keep(self, name: str) -> Operation:
        """A durable queue for messages that are kept out of the way, and are shipped to nobody."""
        return CREATE_FILTERED, (f"{name}.{self.prefix}", "ANYCAST", name, None, True, -1, False, True)

    def canary(self, name: str) -> Operation:
        """A durable queue as clients have them: the plugin makes a flow of it, at both sites."""
        return CREATE_FILTERED, (name, "ANYCAST", name, None, True, -1, False, True)

    def text(self, fields: Fields) -> str:
        found = _HELD.fullmatch(fields.any_text("Filter"))
        return found[1].replace("''", "'") if found is not None else ""

    def is_own(self, bean: str, fields: Fields) -> bool:
        """A client that sends or receives makes a queue with its name as address, and without our filter."""
        address = parts(bean)["address"]
        named = address.startswith(OWN) and address.endswith(f".{self.prefix}")
        return named and _HELD.fullmatch(fields.any_text("Filter")) is not None


def _filter(text: str) -> str:
    return f"{_WORD} = '{text.replace(chr(39), chr(39) * 2)}'"


class Plugin(ListenersAndRoles):
    view: SiteView

    @property
    def open(self) -> bool:
        """Clients may get in as soon as the plugin is activated, delivering or not."""
        service = self.view.service
        return any(listener.started for listener in self.view.listeners) or (service is not None and service.activated)

    @property
    def boots_closed(self) -> bool | None:
        """The plugin closes its listeners at every start; whether it opens them again when the peer talks, it keeps."""
        return None

    def opening(self, listeners: Iterable[Acceptor], peer: Peer, when: str | None = None) -> tuple[Call, ...]:
        if not (list(listeners) or self.view.half_open):
            return ()
        return (self._call(Goal.OPEN, (ACTIVATE_SITE, (WAITS_MS[peer],)), "activate the site", when),)

    def closing(self, listeners: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        activated = self.view.service is not None and self.view.service.activated
        if not (list(listeners) or activated):
            return ()
        return (self._call(Goal.CLOSE, (DEACTIVATE_SITE, ()), "deactivate the site", when),)

    def holds(self, call: Call) -> bool | None:
        match call.goal:
            case Goal.OPEN if call.thing == ALL:
                return self.view.delivers and all(listener.started for listener in self.view.listeners)
            case Goal.CLOSE if call.thing == ALL:
                return not self.open
        return super().holds(call)

    def _call(self, goal: Goal, operation: Operation, about: str, when: str | None) -> Call:
        """The plugin opens and closes all client listeners of its broker at once."""
        bean = self.view.service.bean if self.view.service is not None else ""
        return call(self.view, goal, ALL, request(bean, *operation), about, when)
