"""One look at one broker with diverts and bridges: what is asked, in one POST, and how the answer becomes a view."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.jolokia.client import READ_S, Ask, Listing, Read, Reader
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis import look as parts
from dr_ctl.topologies.artemis.papers import IN_USER
from dr_ctl.topologies.bridges.view import ORIGIN, Bridge, BrokerView, Divert, Flow
from dr_ctl.topologies.common.names import ANY_ADDRESS
from dr_ctl.topologies.common.view import Config, Queue

_SERVER: Final = ("Active", "Version", "NodeID", "CurrentTimeMillis", "DiskStoreUsage")
_QUEUE: Final = (*parts.QUEUE, "FirstMessageAge")
_BRIDGE: Final = (
    "Name", "QueueName", "ForwardingAddress", "Started", "Connected", "MessagesAcknowledged",
    "TransformerPropertiesAsJSON",
)  # fmt: skip
_DIVERT: Final = ("UniqueName", "Address", "ForwardingAddress", "Filter", "Exclusive")
_ADDRESS: Final = ("RolesAsJSON", "UnRoutedMessageCount")
_EVERYTHING: Final = ("", -1, -1)
# Buffers are found by the bridge that reads them; where a broker has stopped its bridges, by this.
BUFFERS: Final = "mirror."


def look(reader: Reader, *, pair: str, site: str, config: Config, broker: str, timeout_s: float = READ_S) -> BrokerView:
    """Ask for everything in one POST. Raises `BrokerError`: a part that is missing is never taken for empty."""
    try:
        return _look(reader, pair, site, config, broker, timeout_s)
    except (KeyError, ValueError, TypeError) as error:
        raise BadValue(f"{reader.url}: a listing is not as expected: {type(error).__name__}: {error}") from error


def _look(reader: Reader, pair: str, site: str, config: Config, broker: str, timeout_s: float) -> BrokerView:
    server = beans.server(broker)
    told = reader.look(
        [
            Read(server, _SERVER),
            Read(beans.RUNTIME, ("StartTime",)),
            Read(beans.all_acceptors(broker), parts.ACCEPTOR),
            Read(beans.all_queues(broker), _QUEUE),
            Read(beans.all_bridges(broker), _BRIDGE),
            Read(beans.all_diverts(broker), _DIVERT),
            Read(beans.all_addresses(broker), _ADDRESS),
            Ask(server, Listing.CONNECTIONS, _EVERYTHING),
            Ask(server, Listing.CONSUMERS, _EVERYTHING),
            Ask(server, Listing.PREPARED),
            Read(beans.documents(broker), IN_USER.attributes),
            Ask(server, Listing.USERS, ("",)),
            Ask(server, Listing.ROLES, (ANY_ADDRESS,)),
        ],
        timeout_s=timeout_s,
    )
    fields = Fields(server, told[0].value())
    listed = [_aged(parts.queue(bean, each), each) for bean, each in parts.found(told[3])]
    bridges = [_bridge(bean, each) for bean, each in parts.found(told[4])]
    flows = joined([_divert(each) for _, each in parts.found(told[5])], listed, bridges)
    ids = next((flow for flow in flows if flow.divert.exclusive), None)
    addresses = {beans.parts(bean)["address"]: each for bean, each in parts.found(told[6])}
    queues = _without_own(listed, flows, ids)
    documents = parts.documents(IN_USER, parts.found(told[10]))
    return BrokerView(
        pair=pair,
        site=site,
        config=config,
        broker=broker,
        version=fields.text("Version"),
        node=fields.text("NodeID"),
        active=fields.flag("Active"),
        now_ms=fields.number("CurrentTimeMillis"),
        disk_used=fields.optional_share("DiskStoreUsage"),
        start=str(Fields(beans.RUNTIME, told[1].value()).number("StartTime")),
        acceptors=tuple(parts.acceptor(bean, each) for bean, each in parts.found(told[2])),
        queues=tuple(sorted(queues, key=lambda queue: queue.name)),
        flows=tuple(flow for flow in flows if not flow.divert.exclusive),
        ids=ids,
        arrived=tuple(each for each in listed if ids is not None and each.address == ids.unit),
        unrouted={name: each.number("UnRoutedMessageCount") for name, each in addresses.items()},
        connections=tuple(parts.connection(row) for row in parts.rows(told[7])),
        consumers=tuple(parts.consumer(row) for row in parts.rows(told[8])),
        prepared=parts.prepared(told[9]),
        documents=documents.own,
        forged=documents.others,
        grants={name: parts.grants(each.text("RolesAsJSON")) for name, each in addresses.items()},
        users=parts.users(told[11]),
        usual=parts.grants(told[12].value()),
    )


def glance(reader: Reader, view: BrokerView, *, timeout_s: float) -> BrokerView:
    """The same broker with its doors, what its bridges ship and the ids that have arrived as they are now. Which queues
    are held closed, and where clients work, is that of the last look."""
    own = [flow.buffer for flow in view.carrying if flow.buffer is not None]
    told = reader.look(
        [
            Read(beans.server(view.broker), ("Active", "CurrentTimeMillis")),
            Read(beans.RUNTIME, ("StartTime",)),
            Read(beans.all_acceptors(view.broker), parts.ACCEPTOR),
            *(Read(queue.bean, parts.QUEUE) for queue in (*own, *view.arrived)),
        ],
        timeout_s=timeout_s,
    )
    fields = Fields(view.broker, told[0].value())
    queues = {
        queue.bean: replace(parts.queue(queue.bean, Fields(queue.bean, answer.value())), internal=queue.internal)
        for queue, answer in zip((*own, *view.arrived), told[3:], strict=True)
    }

    def now(flow: Flow) -> Flow:
        return replace(flow, buffer=queues[flow.buffer.bean]) if flow.buffer is not None else flow

    return replace(
        view,
        active=fields.flag("Active"),
        now_ms=fields.number("CurrentTimeMillis"),
        start=str(Fields(beans.RUNTIME, told[1].value()).number("StartTime")),
        acceptors=tuple(parts.acceptor(bean, each) for bean, each in parts.found(told[2])),
        flows=tuple(map(now, view.flows)),
        ids=now(view.ids) if view.ids is not None else None,
        arrived=tuple(queues[queue.bean] for queue in view.arrived),
    )


def joined(diverts: Iterable[Divert], queues: Sequence[Queue], bridges: Sequence[Bridge]) -> list[Flow]:
    """Each divert with the queue that it fills and the bridges that read it. A divert that feeds neither a bridge nor a
    buffer by its name is not of this topology."""
    flows = []
    for divert in sorted(diverts, key=lambda each: each.name):
        filled = [queue for queue in queues if queue.address == divert.to]
        read = {bridge.queue for bridge in bridges}
        buffer = next((queue for queue in filled if queue.name in read), next(iter(filled), None))
        mine = tuple(bridge for bridge in bridges if buffer is not None and bridge.queue == buffer.name)
        if mine or divert.to.startswith(BUFFERS):
            flows.append(Flow(divert, buffer, mine))
    return flows


def _without_own(queues: Iterable[Queue], flows: Sequence[Flow], ids: Flow | None) -> list[Queue]:
    """What clients use, and beside it what carries messages and ids, which is marked as the broker's own."""
    own = {flow.divert.to for flow in flows} | ({ids.unit} if ids is not None else set())
    return [replace(queue, internal=True) if queue.address in own else queue for queue in queues]


def _bridge(bean: str, fields: Fields) -> Bridge:
    told = fields.optional_text("TransformerPropertiesAsJSON") if fields.has("TransformerPropertiesAsJSON") else None
    written: Mapping[str, object] = json.loads(told) if told else {}
    return Bridge(
        fields.text("Name"),
        bean,
        fields.text("QueueName"),
        fields.optional_text("ForwardingAddress") or "",
        fields.flag("Started"),
        fields.flag("Connected") if fields.has("Connected") else None,
        fields.number("MessagesAcknowledged"),
        str(written[ORIGIN]) if ORIGIN in written else None,
    )


def _divert(fields: Fields) -> Divert:
    return Divert(
        fields.text("UniqueName"),
        fields.text("Address"),
        fields.text("ForwardingAddress"),
        fields.optional_text("Filter"),
        fields.flag("Exclusive"),
    )


def _aged(queue: Queue, fields: Fields) -> Queue:
    """Add how old the oldest is; the broker says null where it cannot tell, and nothing where nothing lies there."""
    age = fields.optional_number("FirstMessageAge") if fields.has("FirstMessageAge") and queue.depth else None
    return replace(queue, oldest_ms=age) if age is not None and age >= 0 else queue
