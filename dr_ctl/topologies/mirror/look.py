"""One look at one broker: what is asked, in one POST, and how the answer becomes a view.

Two sizes: everything (a few hundred bytes a queue), and the gate's own numbers (the same few milliseconds however many
queues there are) for the tight polls of a drain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dr_ctl.jolokia import beans
from dr_ctl.jolokia.client import READ_S, Answer, Ask, Listing, Read, Reader, Search
from dr_ctl.jolokia.errors import BadValue, NoSuchBean, OperationFailed
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.mirror.view import (
    OUTFLOW_PREFIX,
    Acceptor,
    BrokerView,
    Config,
    Connection,
    Consumer,
    Grants,
    Link,
    Queue,
)

_SERVER: Final = ("Active", "Version", "NodeID", "CurrentTimeMillis", "PendingMirrorAcks")
_ACCEPTOR: Final = ("Name", "Started", "Parameters")
_LINK: Final = ("Name", "Started", "Connected", "Protocol")
_QUEUE: Final = (
    "MessageCount", "DeliveringCount", "ScheduledCount", "ConsumerCount", "Paused",
    "MessagesAdded", "MessagesAcknowledged", "MessagesExpired", "MessagesKilled",
    "Durable", "Temporary", "InternalQueue", "RingSize", "LastValue", "DeadLetterAddress", "ExpiryAddress",
)  # fmt: skip
_EVERYTHING: Final = ("", -1, -1)


def find_broker(reader: Reader, *, timeout_s: float = READ_S) -> str:
    """Find the broker's own name; raises `NoSuchBean` where there is none or several."""
    names = reader.look([Search(beans.ANY_SERVER)], timeout_s=timeout_s)[0].value()
    try:
        found = [beans.parts(str(name)).get("broker") for name in names]
    except (ValueError, TypeError) as error:
        raise BadValue(f"{reader.url}: the search for the broker gave no names of beans: {error}") from error
    if len(found) != 1 or found[0] is None:
        raise NoSuchBean(f"{reader.url}: {len(found)} brokers answer there; name one with `broker:`")
    return found[0]


def look(reader: Reader, *, pair: str, site: str, config: Config, broker: str, timeout_s: float = READ_S) -> BrokerView:
    """Ask for everything in one POST. Raises `BrokerError`: a part that is missing is never taken for empty."""
    try:
        return _look(reader, pair, site, config, broker, timeout_s)
    except (KeyError, ValueError, TypeError) as error:
        raise BadValue(f"{reader.url}: a listing is not as expected: {type(error).__name__}: {error}") from error


def _look(reader: Reader, pair: str, site: str, config: Config, broker: str, timeout_s: float) -> BrokerView:
    server = beans.server(broker)
    matches = config.lasting.matches if config.lasting is not None else ()
    told = reader.look(
        [
            Read(server, _SERVER),
            Read(beans.RUNTIME, ("StartTime",)),
            Read(beans.all_acceptors(broker), _ACCEPTOR),
            Read(beans.all_broker_connections(broker), _LINK),
            Read(beans.all_queues(broker), _QUEUE),
            Ask(server, Listing.CONNECTIONS, _EVERYTHING),
            Ask(server, Listing.CONSUMERS, _EVERYTHING),
            Ask(server, Listing.PREPARED),
            Ask(server, Listing.LOCK_COORDINATORS),
            Read(beans.documents(broker), ("Name", "User")),
            Read(beans.outflows(broker), ("FirstMessageTimestamp",)),
            *(Ask(server, Listing.ROLES, (match,)) for match in matches),
            *([Ask(server, Listing.USERS, ("",))] if matches else []),
        ],
        timeout_s=timeout_s,
    )
    fields = Fields(server, told[0].value())
    now_ms = fields.number("CurrentTimeMillis")
    outflows = dict(_beans(told[10]))
    queues = [_aged(_queue(bean, each), outflows, now_ms) for bean, each in _beans(told[4])]
    return BrokerView(
        pair=pair,
        site=site,
        config=config,
        broker=broker,
        version=fields.text("Version"),
        node=fields.text("NodeID"),
        active=fields.flag("Active"),
        now_ms=now_ms,
        pending_acks=fields.number("PendingMirrorAcks"),
        start=str(Fields(beans.RUNTIME, told[1].value()).number("StartTime")),
        acceptors=tuple(_acceptor(bean, each) for bean, each in _beans(told[2])),
        links=tuple(_link(bean, each) for bean, each in _beans(told[3])),
        queues=tuple(sorted(queues, key=lambda queue: queue.name)),
        connections=tuple(_connection(row) for row in _rows(told[5])),
        consumers=tuple(_consumer(row) for row in _rows(told[6])),
        prepared=_prepared(told[7]),
        lock_coordinators=_coordinators(told[8]),
        documents={each.text("Name"): each.optional_text("User") or "" for _, each in _beans(told[9])},
        grants={match: _grants(each.value()) for match, each in zip(matches, told[11:], strict=False)},
        users=_users(told[-1]) if matches else None,
    )


@dataclass(frozen=True, slots=True)
class Flow:
    """The gate's own numbers of one broker: what it still ships, whether its link ships, what it has not applied."""

    outflow: int
    outflow_delivering: int
    outflow_consumers: int
    outflow_added: int
    pending_acks: int
    link_started: bool
    link_connected: bool
    doors_open: tuple[str, ...]
    mirror_open: bool

    @property
    def attached(self) -> bool:
        return self.link_connected and self.outflow_consumers > 0

    @property
    def empty(self) -> bool:
        return self.outflow == 0 and self.outflow_delivering == 0 and self.pending_acks == 0


def look_at_flow(reader: Reader, view: BrokerView, *, timeout_s: float) -> Flow:
    """Ask for the gate's numbers in one POST; what `view` told of names and acceptors says where to look."""
    outflow, link = view.outflow, view.link
    if outflow is None or link is None:
        raise NoSuchBean(f"{reader.url}: no link to the peer, so no outflow to look at")
    told = reader.look(
        [
            Read(beans.server(view.broker), ("PendingMirrorAcks",)),
            Read(outflow.bean, ("MessageCount", "DeliveringCount", "ConsumerCount", "MessagesAdded")),
            Read(beans.broker_connection(view.broker, link.name), ("Started", "Connected")),
            Read(beans.all_acceptors(view.broker), ("Name", "Started")),
        ],
        timeout_s=timeout_s,
    )
    queue = Fields(outflow.bean, told[1].value())
    connection = Fields(link.name, told[2].value())
    started = {fields.text("Name"): fields.flag("Started") for _, fields in _beans(told[3])}
    if lost := [door.name for door in (*view.doors, *view.mirror_doors) if door.name not in started]:
        raise NoSuchBean(f"{reader.url}: acceptor {', '.join(lost)} is not there any more")
    return Flow(
        outflow=queue.number("MessageCount"),
        outflow_delivering=queue.number("DeliveringCount"),
        outflow_consumers=queue.number("ConsumerCount"),
        outflow_added=queue.number("MessagesAdded"),
        pending_acks=Fields(view.broker, told[0].value()).number("PendingMirrorAcks"),
        link_started=connection.flag("Started"),
        link_connected=connection.flag("Connected"),
        doors_open=tuple(door.name for door in view.doors if started[door.name]),
        mirror_open=all(started[door.name] for door in view.mirror_doors),
    )


def dispatch(reader: Reader, view: BrokerView) -> dict[str, tuple[int, bool]]:
    """What each queue has in delivery and whether it is paused, and nothing else: the poll of a quiesce."""
    told = reader.look([Read(beans.all_queues(view.broker), ("DeliveringCount", "Paused"))])
    return {
        beans.parts(bean)["queue"]: (fields.number("DeliveringCount"), fields.flag("Paused"))
        for bean, fields in _beans(told[0])
    }


def _beans(answer: Answer) -> list[tuple[str, Fields]]:
    """What a pattern matched; nothing matched is an empty list, any other error is raised."""
    if isinstance(answer.error, NoSuchBean):
        return []
    value = answer.value()
    if not isinstance(value, dict):
        raise BadValue("a read by pattern gave no beans")
    return [(bean, Fields(bean, told)) for bean, told in value.items()]


def _rows(answer: Answer) -> list[dict[str, Any]]:
    told = json.loads(str(answer.value()))
    rows = told["data"] if isinstance(told, dict) else None
    if not isinstance(rows, list) or told.get("count", len(rows)) != len(rows):
        raise BadValue("a listing gave no rows, or not all of them")
    return rows


def _port(address: str) -> int | None:
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else None


def _acceptor(bean: str, fields: Fields) -> Acceptor:
    told = fields.mapping("Parameters")
    port = told.get("port", "")
    return Acceptor(
        name=fields.text("Name"),
        bean=bean,
        started=fields.flag("Started"),
        port=int(port) if port.isdecimal() else None,
        # An acceptor that names no protocol speaks them all.
        protocols=frozenset(told.get("protocols", "CORE,AMQP,STOMP,HORNETQ,MQTT,OPENWIRE").upper().split(",")),
        opens_at_boot=told.get("autoStart", "true").lower() != "false",
    )


def _link(bean: str, fields: Fields) -> Link:
    del bean
    return Link(fields.text("Name"), fields.flag("Started"), fields.flag("Connected"), fields.text("Protocol"))


def _queue(bean: str, fields: Fields) -> Queue:
    keys = beans.parts(bean)
    acked = fields.number("MessagesAcknowledged")
    name = keys["queue"]
    return Queue(
        name=name,
        address=keys["address"],
        routing=keys["routing-type"],
        bean=bean,
        depth=fields.number("MessageCount"),
        delivering=fields.number("DeliveringCount"),
        scheduled=fields.number("ScheduledCount"),
        consumers=fields.number("ConsumerCount"),
        paused=fields.flag("Paused"),
        added=fields.number("MessagesAdded"),
        acked=acked,
        removed=acked + fields.number("MessagesExpired") + fields.number("MessagesKilled"),
        durable=fields.flag("Durable"),
        temporary=fields.flag("Temporary"),
        internal=fields.flag("InternalQueue") if fields.has("InternalQueue") else name.startswith(OUTFLOW_PREFIX),
        ring=fields.has("RingSize") and fields.number("RingSize") >= 0,
        last_value=fields.has("LastValue") and fields.flag("LastValue"),
        dead_letter_address=fields.optional_text("DeadLetterAddress"),
        expiry_address=fields.optional_text("ExpiryAddress"),
    )


def _aged(queue: Queue, outflows: Mapping[str, Fields], now_ms: int) -> Queue:
    """Add how old the oldest is. The broker tells the time of the first that the link has not taken yet: while it holds
    some that are older that says nothing. Acknowledgements have no time: it is null or 0 then."""
    fields = outflows.get(queue.bean)
    if fields is None or queue.depth == 0 or queue.delivering > 0 or not fields.has("FirstMessageTimestamp"):
        return queue
    since_ms = fields.optional_number("FirstMessageTimestamp")
    return replace(queue, oldest_ms=max(0, now_ms - since_ms)) if since_ms else queue


def _connection(row: dict[str, Any]) -> Connection:
    return Connection(
        id=str(row["connectionID"]),
        port=_port(str(row["localAddress"])),
        remote=str(row["remoteAddress"]),
        client=str(row["clientID"] or ""),
        user=str(row["users"] or ""),
        protocol=str(row["protocol"]),
    )


def _consumer(row: dict[str, Any]) -> Consumer:
    return Consumer(
        queue=str(row["queue"]),
        port=_port(str(row["localAddress"])),
        client=str(row["clientID"] or ""),
        remote=str(row["remoteAddress"]),
        user=str(row["user"] or ""),
        holds=int(row.get("messagesInTransit") or 0),
    )


def _prepared(answer: Answer) -> tuple[str, ...]:
    """The prepared transactions; the broker says an empty text where there are none."""
    told = answer.value()
    if told == "":
        return ()
    listed = json.loads(str(told))
    if not isinstance(listed, list):
        raise BadValue("the list of prepared transactions is no list")
    return tuple(str(each.get("xid_as_base64", each)) if isinstance(each, dict) else str(each) for each in listed)


def uncovered(reader: Reader, view: BrokerView) -> list[str]:
    """Business addresses where a role that the lasting fence keeps out may still send or consume."""
    lasting = view.config.lasting
    if lasting is None:
        return []
    mine = {queue.address for queue in view.business.values()}
    told = reader.look([Read(beans.all_addresses(view.broker), ("RolesAsJSON",))])
    roles = {beans.parts(bean)["address"]: _grants(fields.text("RolesAsJSON")) for bean, fields in _beans(told[0])}
    may = {"send", "consume"}
    return sorted(
        name
        for name, grants in roles.items()
        if name in mine and any(may & {*grants.get(role, ())} for role in lasting.roles)
    )


def _grants(text: object) -> Grants:
    """What each role may do; the words of the broker's listing are kept, whichever its version has."""
    rows = json.loads(str(text))
    return {
        str(row["name"]): tuple(word for word, granted in row.items() if granted is True and word != "name")
        for row in rows
    }


def _users(answer: Answer) -> dict[str, frozenset[str]] | None:
    """The users and their roles; None where the broker's security keeps them elsewhere."""
    if isinstance(answer.error, OperationFailed):
        return None
    rows = json.loads(str(answer.value()))
    return {str(row["username"]): frozenset(str(role) for role in row["roles"]) for row in rows}


def _coordinators(answer: Answer) -> tuple[str, ...]:
    """The lock coordinators; versions that have none do not know the operation."""
    if isinstance(answer.error, OperationFailed) and "No operation" in str(answer.error):
        return ()
    listed = json.loads(str(answer.value()))
    return tuple(str(each["name"]) for each in listed)


def names(views: Sequence[BrokerView]) -> list[str]:
    """All business queues of several brokers, each once."""
    return sorted({name for view in views for name in view.business})
