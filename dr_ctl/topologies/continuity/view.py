"""A broker with the continuity plugin as one look has shown it: frozen values, and facts that follow from them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from dr_ctl.core.model import Role
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.artemis.broker import ArtemisBroker
from dr_ctl.topologies.common.calls import resume
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.continuity.document_queue import InFilter
from dr_ctl.topologies.continuity.fence import Plugin
from dr_ctl.topologies.continuity.link import ContinuityLink

PREFIX: Final = "continuity.cmd"


@dataclass(frozen=True, slots=True)
class Service:
    """The plugin itself. `suffixes` name its queues: outflow of messages, of acknowledgements, inflow of both;
    `connectors` lead to its peer, each to another node."""

    bean: str
    site_id: str
    activated: bool
    delivering: bool
    started: bool
    staging_ms: int
    interval_ms: float
    suffixes: tuple[str, str, str, str]
    prefix: str
    connectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge. The counters only ever grow, and the difference between them is under way."""

    name: str
    bean: str
    started: bool
    forwarded: int
    acked: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The way of one queue's messages: four queues, the two bridges that ship and the one that delivers."""

    queue: str
    address: str
    out_mirror: Queue
    out_acks: Queue
    in_mirror: Queue
    in_acks: Queue
    mirror_bridge: Bridge
    acks_bridge: Bridge
    target_bridge: Bridge

    @property
    def outflow(self) -> tuple[Queue, Queue]:
        return self.out_mirror, self.out_acks

    @property
    def shipping(self) -> tuple[Bridge, Bridge]:
        return self.mirror_bridge, self.acks_bridge

    @property
    def stuck(self) -> bool:
        """True if all staged messages were handed to the queue and not taken: the queue has them already, or takes no
        message. Only the ids tell these apart."""
        staged = self.in_mirror
        return staged.depth > 0 and staged.scheduled == 0 and staged.delivering == staged.depth


@dataclass(frozen=True, slots=True)
class Commands:
    """How the two plugins talk to each other."""

    out: Queue
    into: Queue
    bridge: Bridge


@dataclass(frozen=True, slots=True)
class SiteView(ArtemisBroker):
    """A broker as it answered. `service` is None where the plugin has not started."""

    service: Service | None
    flows: tuple[Flow, ...]
    commands: Commands | None
    _flows: Mapping[str, Flow] = field(init=False, repr=False, compare=False)
    bridges: Mapping[str, Bridge] = field(init=False, repr=False, compare=False)

    @property
    def link(self) -> ContinuityLink:
        return ContinuityLink(self)

    @property
    def fence(self) -> Plugin:
        return Plugin(self)

    def __post_init__(self) -> None:
        ArtemisBroker.__post_init__(self)
        bridges = [bridge for flow in self.flows for bridge in (*flow.shipping, flow.target_bridge)]
        object.__setattr__(self, "_flows", {flow.queue: flow for flow in self.flows})
        object.__setattr__(self, "bridges", {bridge.name: bridge for bridge in bridges})

    @property
    def role(self) -> Role:
        if self.service is None or not self.service.started or self.missing_doors:
            return Role.UNKNOWN
        return Role.SERVING if self.open else Role.STANDBY

    @property
    def delivers(self) -> bool:
        return self.service is not None and self.service.activated and self.service.delivering

    @property
    def half_open(self) -> bool:
        """Clients may get in, and nothing that is staged is delivered yet."""
        return self.service is not None and self.service.activated and not self.service.delivering

    @property
    def document_queue(self) -> InFilter:
        return InFilter(self.service.prefix if self.service is not None else PREFIX)

    def flow(self, queue: str) -> Flow | None:
        return self._flows.get(queue)

    def places(self, queue: str) -> tuple[Queue, Queue]:
        """Where the messages of a flow lie: in the clients' queue, and staged. LookupError where there is no flow."""
        flow = self.flow(queue)
        if flow is None:
            raise LookupError(f"{self.site} has no flow of {queue}")
        return self.business[queue], flow.in_mirror

    def lying(self, queue: str) -> list[Queue]:
        """The queues of a flow that exist here, in the order in which a message goes through them."""
        flow, there = self.flow(queue), self.business.get(queue)
        return [*([flow.in_mirror] if flow is not None else []), *([there] if there is not None else [])]

    def lies(self, queue: str) -> int:
        """How many messages of a queue lie here, delivered or staged."""
        return sum(each.depth for each in self.lying(queue))

    def uncomparable(self) -> Iterator[str]:
        """The reasons why messages of both sites cannot be compared by id. Commands are left out: a command says
        nothing of messages."""
        if self.service is None or self.commands is None:
            yield f"{self.site}: the continuity plugin has not started"
            return
        if stopped := [name for name, started in self.link.ships.items() if not started]:
            yield f"{self.site}: bridge {', '.join(stopped[:3])} is stopped"
        elif not self.link.attached:
            yield f"{self.site}: a bridge is not connected to its peer"
        yield from self.under_way()
        for flow in self.flows:
            if flow.in_mirror.scheduled:
                yield f"{self.site}: {flow.in_mirror.scheduled} in {flow.in_mirror.name} for the staging delay"

    def under_way(self) -> Iterator[str]:
        """Messages and acknowledgements on their way between the sites. Messages in the staging delay have arrived, and
        a command says nothing of messages."""
        for flow in self.flows:
            for queue in (*flow.outflow, flow.in_acks):
                if queue.depth:
                    what = "not applied yet in" if queue is flow.in_acks else "to ship in"
                    yield f"{self.site}: {queue.depth} {what} {queue.name}"

    def gone_with_its_queue(self, call: Call) -> bool:
        """Say whether a call is for a bridge that is not there any more: a queue takes its flow along."""
        return call.goal in (Goal.LINK_UP, Goal.LINK_DOWN) and call.thing not in self.bridges

    def as_it_lies(self, call: Call) -> Call:
        """The call with the present bean of a staging queue whose own queue was deleted. A staging queue with messages
        stays held, as its messages were not compared."""
        carried = {flow.in_mirror.name for flow in self.flows}
        left = next((each for each in self.queues if each.name == call.thing and each.name not in carried), None)
        if call.goal is not Goal.RESUME or left is None or left.depth:
            return call
        return replace(call, request=resume(self, left).request)


ContinuitySeen = Seen[SiteView]
