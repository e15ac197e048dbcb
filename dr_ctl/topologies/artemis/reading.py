"""Reads that every Artemis broker gets, and the conversion of its answers to a view. `Session` reads and changes one
broker. `Documents` stores dr-ctl's locks, receipts and debts on the broker, as queues without messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from sys import intern
from typing import Any, ClassVar, Final

from dr_ctl.core.errors import Passive, StartingOrEnding
from dr_ctl.core.model import brief
from dr_ctl.core.system import boottime_s
from dr_ctl.engine.lease import NOBODYS, Forbidden, Store
from dr_ctl.jolokia.client import READ_S, Answer, Listing, Post, Query, Read, Reader, Search, Transport, make_changes
from dr_ctl.jolokia.http import BadValue, NoSuchBean, OperationFailed, PolicyRefused
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.artemis import ArtemisBroker as Settings
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.broker import DELETE, EVERY, ArtemisBroker, ArtemisRequests, B_co, Coordinator, Group
from dr_ctl.topologies.common import group, session
from dr_ctl.topologies.common.calls import BROKERS, DOCUMENT, OWN, Request, numbered
from dr_ctl.topologies.common.session import ReadScope, change
from dr_ctl.topologies.common.view import Acceptor, Broker, Config, Connection, Consumer, Grants, Queue
from dr_ctl.topologies.proposing import Family, Listener, Probed
from dr_ctl.topologies.topology import NodeReading, NodeState, Obstacle

ACCEPTOR: Final = ("Name", "Started", "Parameters")
QUEUE: Final = (
    "MessageCount", "DeliveringCount", "ScheduledCount", "ConsumerCount", "Paused",
    "MessagesAdded", "MessagesAcknowledged", "MessagesExpired", "MessagesKilled",
    "Durable", "Temporary", "InternalQueue", "RingSize", "LastValue", "DeadLetterAddress", "ExpiryAddress",
)  # fmt: skip
# The gate reads `COUNTS`, and the pausing of queues reads `PAUSES`: every further attribute costs a broker of ten
# thousand queues a tenth of a second.
COUNTS: Final = ("MessageCount", "DeliveringCount", "MessagesAdded")
PAUSES: Final = ("Paused",)
# The history keeps these figures of a queue.
MOVING: Final = (*COUNTS, "MessagesAcknowledged", "MessagesExpired", "MessagesKilled")
GROUP: Final = ("HAPolicy", "SharedStore", "Backup")
"""Each reading of the broker reads these attributes; an old version lacks the first one."""
LIMITS: Final = ("DiskStoreUsage", "MaxDiskUsage", "AddressMemoryUsage", "GlobalMaxSize")
"""Each reading reads these figures; a version that lacks one leaves it out."""
_ADDRESS: Final = ("Paused", "BlockedViaManagement", "AddressLimitPercent", "Paging")
WORKING_RIGHTS: Final = frozenset({"send", "consume"})  # the rights of a role with which it can work
_FULL: Final = 100
_MEASURED_WITHIN_MS: Final = 60_000  # twelve times the default of disk-scan-period, which no broker shows
# Only these policies keep messages out of an address at its limit; any other policy writes them to disk.
_POLICIES: Final = {
    "BLOCK": "their senders wait",
    "FAIL": "what is sent there is refused",
    "DROP": "what is sent there is dropped",
}
_PARTS: Final = ("StringProperties", "LongProperties", "IntProperties")
_SECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "CORE": ("", ""),
    "AMQP": ("applicationProperties.", "extraProperties."),
}


def queue_attributes(scope: ReadScope) -> tuple[str, ...]:
    parts = {ReadScope.QUEUES: QUEUE, ReadScope.REMOVED: MOVING, ReadScope.COUNTS: COUNTS, ReadScope.PAUSES: PAUSES}
    return next((attributes for part, attributes in parts.items() if part in scope), ())


def all_rows(column: str) -> tuple[str, int, int]:
    """Return the arguments that select all rows of a listing, in every version: only since 2.38 an empty text means
    all. A broker fails if the values that it sorts by change meanwhile; those of `column` do not change."""
    options = {"field": "", "operation": "", "value": "", "sortColumn": column, "sortOrder": "asc"}
    return json.dumps(options), 1, 1_000_000


@dataclass(frozen=True, slots=True)
class Dialect:
    """The attributes that depend on the broker's version: those of its `server` and those of its process (`runtime`).
    Without `documents`, the topology reads dr-ctl's documents by a listing of its own."""

    server: tuple[str, ...] = ("Active", "CurrentTimeMillis")
    runtime: tuple[str, ...] = ("StartTime",)
    documents: bool = True

    @property
    def has_clock(self) -> bool:
        return "CurrentTimeMillis" in self.server

    def clock(self, broker: str) -> Read:
        return (
            Read(beans.server(broker), ("CurrentTimeMillis",)) if self.has_clock else Read(beans.RUNTIME, self.runtime)
        )

    def now_ms(self, clock: Fields) -> int:
        """Return the broker's time; a broker without a clock gives its start and its run time."""
        attributes = ("CurrentTimeMillis",) if self.has_clock else ("StartTime", "Uptime")
        return sum(map(clock.number, attributes))


class CommonReads:
    """The reads that every Artemis broker gets, added to the request of its topology. With an earlier reading (`known`)
    only changing values are read, which takes a few milliseconds for any number of queues."""

    def __init__(
        self, post: Post, broker: str, dialect: Dialect, *, clients: bool = True, known: ArtemisBroker | None = None
    ) -> None:
        server, whole = beans.server(broker), known is None
        self._dialect, self._known, self._requests = dialect, known, ArtemisRequests(broker)
        constant = ("Version", "NodeID", "IDCacheSize", "PersistIDCache", *LIMITS, *GROUP) if whole else ()
        self._server = post.ask(Read(server, tuple(dict.fromkeys((*dialect.server, *constant)))))
        self._topology = post.ask(Query(server, Listing.TOPOLOGY)) if whole else None
        self._runtime = post.ask(Read(beans.RUNTIME, dialect.runtime))
        self._acceptors = post.ask(Read(beans.acceptor(broker), ACCEPTOR)) if whole else None
        # Each is read by its name: for a pattern the broker searches the names of all its queues too.
        acceptors = {*known.listeners, *known.link.listeners} if known is not None else set()
        self._listeners = {acceptor.name: post.ask(Read(acceptor.bean, ("Started",))) for acceptor in acceptors}
        own_documents = Read(beans.documents(broker), self._requests.attributes)
        self._documents = post.ask(own_documents) if dialect.documents and whole else None
        listings = (
            Query(server, Listing.CONNECTIONS, all_rows("implementation")),
            Query(server, Listing.CONSUMERS, all_rows("id")),
            Query(server, Listing.PREPARED),
        )
        self._clients = [post.ask(query) for query in listings] if clients and whole else None

    @property
    def server(self) -> Fields:
        return self._server.fields()

    @property
    def _start_ms(self) -> int:
        return self._runtime.fields().number("StartTime")

    @property
    def now_ms(self) -> int:
        return self._dialect.now_ms(self.server if self._dialect.has_clock else self._runtime.fields())

    def moving(self, reader: Reader) -> dict[str, Any]:
        """Return the clock, the start and the listeners, as fields of a view. Raises `BrokerError` if the broker is not
        active any more, or lacks a listener."""
        known = self._known
        if known is not None and "Active" in self._dialect.server:
            must_be_active(reader.url, known.group, self.server)
        return {
            "now_ms": self.now_ms,
            "start": f"{reader.activation}{self._start_ms}",
            "acceptors": tuple(acceptor(bean, row) for bean, row in self._acceptors.beans())
            if self._acceptors is not None
            else tuple(self._reread(acceptor) for acceptor in (known.acceptors if known is not None else ())),
        }

    def _reread(self, known: Acceptor) -> Acceptor:
        asked = self._listeners.get(known.name)
        return replace(known, started=asked.fields().flag("Started")) if asked is not None else known

    def values(self, reader: Reader) -> dict[str, Any]:
        """Return all values, as fields of a view. Raises `BrokerError` for a broker that is not active."""
        server, dialect = self.server, self._dialect
        assert self._topology is not None
        active = server.flag("Active") if "Active" in dialect.server else True
        group = read_group(reader.url, server, server.text("NodeID"), self._topology, active=active)
        values = self.moving(reader) | {
            "version": server.text("Version"),
            "node": server.text("NodeID"),
            "group": group,
            "disk_used": disk_used(server),
            "obstacles": limits_of_server(server, self.now_ms - self._start_ms),
            "id_cache": server.optional_number("IDCacheSize") if server.has("IDCacheSize") else None,
            "keeps_ids": not server.has("PersistIDCache") or server.flag("PersistIDCache"),
        }
        if self._documents is not None:
            values |= documents(self._requests, self._documents.beans())
        if self._clients is not None:
            connections, consumers, prepared_ = self._clients
            values["connections"] = tuple(map(connection, connections.rows()))
            values["consumers"] = tuple(map(consumer, consumers.rows()))
            values["prepared"] = prepared(prepared_)
        return values


def read_group(url: str, server: Fields, node: str, topology: Answer, *, active: bool = True) -> Group:
    """Read the group from the broker's attributes and, if the console permits it, from its listing of the cluster.
    Raises `Passive` for a passive backup, `StartingOrEnding` for a broker that is starting, and `BadValue`. `active` is
    the broker's attribute; the oldest versions report only whether the node is a passive backup."""
    rows = [] if isinstance(topology.error, OperationFailed | PolicyRefused) else _brokers_in(topology)
    own = next((row for row in rows if row.get("nodeID") == node), {})
    group = Group(
        policy=server.optional_text("HAPolicy") if server.has("HAPolicy") else None,
        shares_store=server.flag("SharedStore"),
        at=own.get("live"),
        nodes=(own["backup"],) if own.get("backup") else (),
        cluster=tuple(sorted(row["live"] for row in rows if row is not own and row.get("live"))),
    )
    is_backup = server.flag("Backup")
    if active and not is_backup:
        return group
    if not (is_backup or group.has_nodes):
        raise StartingOrEnding(f"{url}: the broker there is not active: it is starting, or ending")
    at = tuple(filter(None, (group.at, *group.nodes)))
    where = f" ({' and '.join(at)})" if at else ""
    text = f"{url}: the node there is passive: another node of that broker{where} is active, or none is"
    raise Passive(text, at=at)


def _brokers_in(topology: Answer) -> list[Mapping[str, Any]]:
    rows = json.loads(str(topology.value()))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadValue("the listing of the cluster is no list")
    return rows


def must_be_active(url: str, known: Group, server: Fields) -> None:
    if not server.flag("Active"):
        error = Passive if known.has_nodes else StartingOrEnding
        raise error(f"{url}: the node there is not active any more")


@contextmanager
def as_expected(url: str, what: str = "a listing") -> Iterator[None]:
    """Raise `BadValue` for a listing of another shape, so that a missing part never counts as empty."""
    try:
        yield
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadValue(f"{url}: {what} is not as expected: {type(error).__name__}: {error}") from error


def documents(requests: ArtemisRequests, queues: Iterable[tuple[str, Fields]]) -> dict[str, Any]:
    """Return the fields `documents` and `forged` of a view: a client may have made a forged one."""
    own: dict[str, str] = {}
    forged = []
    for bean, fields in queues:
        name = beans.parts(bean)["queue"]
        if DOCUMENT.match(name) and not requests.is_own(bean, fields):
            forged.append(name)
        else:
            own[name] = requests.text(fields)
    return {"documents": own, "forged": tuple(sorted(forged))}


def find_broker(reader: Reader, *, timeout_s: float = READ_S) -> str:
    """Find the broker's own name; raises `NoSuchBean` where there is none or several."""
    names = reader.read([Search(beans.ANY_SERVER)], timeout_s=timeout_s)[0].value()
    try:
        brokers = [beans.parts(str(name)).get("broker") for name in names]
    except (ValueError, TypeError) as error:
        raise BadValue(f"{reader.url}: the search for the broker gave no names of beans: {error}") from error
    if len(brokers) != 1 or brokers[0] is None:
        raise NoSuchBean(f"{reader.url}: {len(brokers)} brokers answer there; name one with `broker:`")
    return brokers[0]


def dispatch(reader: Reader, view: Broker) -> dict[str, tuple[int, bool]]:
    answers = reader.read([Read(beans.queue(view.broker), ("DeliveringCount", "Paused"))])
    rows = ((beans.parts(bean)["queue"], fields) for bean, fields in answers[0].beans())
    return {name: (fields.number("DeliveringCount"), fields.flag("Paused")) for name, fields in rows}


def _port(address: str) -> int | None:
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else None


def acceptor(bean: str, fields: Fields) -> Acceptor:
    parameters = fields.mapping("Parameters")
    return Acceptor(
        name=fields.text("Name"),
        bean=bean,
        started=fields.flag("Started"),
        port=_port(parameters.get("port", "")),
        # An acceptor that names no protocol speaks them all.
        protocols=frozenset(parameters.get("protocols", "CORE,AMQP,STOMP,HORNETQ,MQTT,OPENWIRE").upper().split(",")),
        opens_at_boot=parameters.get("autoStart", "true").lower() != "false",
    )


def queue_by_counters(bean: str, fields: Fields) -> Queue:
    """Return a queue by its counters only; it counts as durable and as of no special kind."""
    keys, acked = beans.parts(bean), fields.number("MessagesAcknowledged")
    name, address = keys["queue"], keys["address"]
    return Queue(
        name=name,
        # Equal texts are stored once.
        address=name if address == name else address,
        routing=intern(keys["routing-type"]),
        bean=bean,
        depth=fields.number("MessageCount"),
        delivering=fields.number("DeliveringCount"),
        scheduled=fields.number("ScheduledCount"),
        consumers=fields.number("ConsumerCount"),
        paused=fields.flag("Paused"),
        added=fields.number("MessagesAdded"),
        acked=acked,
        removed=acked,
    )


def queue(bean: str, fields: Fields) -> Queue:
    counted = queue_by_counters(bean, fields)
    return replace(
        counted,
        removed=counted.acked + fields.number("MessagesExpired") + fields.number("MessagesKilled"),
        durable=fields.flag("Durable"),
        temporary=fields.flag("Temporary"),
        internal=fields.flag("InternalQueue") if fields.has("InternalQueue") else counted.name.startswith(BROKERS),
        ring=fields.has("RingSize") and fields.number("RingSize") >= 0,
        last_value=fields.has("LastValue") and fields.flag("LastValue"),
        dead_letter_address=_interned(fields.optional_text("DeadLetterAddress")),
        expiry_address=_interned(fields.optional_text("ExpiryAddress")),
    )


def _interned(text: str | None) -> str | None:
    return intern(text) if text is not None else None


def updated_queue(known: Queue, fields: Fields, attributes: Iterable[str]) -> Queue:
    if attributes == PAUSES:
        paused = fields.flag("Paused")
        return known if paused is known.paused else replace(known, paused=paused)
    depth, delivering, added = (fields.number(attribute) for attribute in COUNTS)
    acked, removed = known.acked, known.removed
    if attributes == MOVING:
        acked = fields.number("MessagesAcknowledged")
        removed = acked + fields.number("MessagesExpired") + fields.number("MessagesKilled")
    now = depth, delivering, added, acked, removed
    if now == (known.depth, known.delivering, known.added, known.acked, known.removed):
        return known
    return replace(known, depth=depth, delivering=delivering, added=added, acked=acked, removed=removed)


def connection(row: dict[str, Any]) -> Connection:
    return Connection(
        id=str(row["connectionID"]),
        port=_port(str(row["localAddress"])),
        remote=str(row["remoteAddress"]),
        client=str(row["clientID"] or ""),
        user=str(row["users"] or ""),
        protocol=str(row["protocol"]),
        has_session=int(row.get("sessionCount", bool(row["users"]))) > 0,
    )


def consumer(row: dict[str, Any]) -> Consumer:
    return Consumer(
        queue=str(row["queue"]),
        port=_port(str(row["localAddress"])),
        client=str(row["clientID"] or ""),
        remote=str(row["remoteAddress"]),
        user=str(row["user"] or ""),
        holds=int(row["messagesInTransit"] or 0) if "messagesInTransit" in row else None,
    )


def prepared(answer: Answer) -> tuple[str, ...]:
    """Return the prepared transactions; the broker answers with an empty text if there are none."""
    text = answer.value()
    if text == "":
        return ()
    listed = json.loads(str(text))
    if not isinstance(listed, list):
        raise BadValue("the list of prepared transactions is no list")
    return tuple(str(row.get("xid_as_base64", row)) if isinstance(row, dict) else str(row) for row in listed)


def serves_no_role(reader: Reader, view: Broker) -> bool:
    """Say whether no role may send or consume, by default or at any address that is not the broker's own."""
    default, rows = view.grants.get(EVERY), rights_by_address(reader, view)
    at_addresses = [granted for name, granted in rows if not name.startswith((*BROKERS, OWN))]
    return default is not None and not any(
        WORKING_RIGHTS & {*rights} for granted in (default, *at_addresses) for rights in granted.values()
    )


def rights_by_address(reader: Reader, view: Broker) -> list[tuple[str, Grants]]:
    answers = reader.read([Read(beans.address(view.broker), ("RolesAsJSON",))])
    return [(beans.parts(bean)["address"], grants(fields.text("RolesAsJSON"))) for bean, fields in answers[0].beans()]


def grants(text: object) -> Grants:
    """Return the rights of each role, by the broker's names for them."""
    return {
        str(row["name"]): tuple(word for word, granted in row.items() if granted is True and word != "name")
        for row in json.loads(str(text))
    }


def users(answer: Answer) -> dict[str, frozenset[str]] | None:
    if isinstance(answer.error, OperationFailed):
        return None
    rows = json.loads(str(answer.value()))
    return {str(row["username"]): frozenset(str(role) for role in row["roles"]) for row in rows}


def coordinators(answer: Answer) -> tuple[Coordinator, ...]:
    """Return the lock coordinators; versions without them do not know the operation."""
    if isinstance(answer.error, OperationFailed) and "No operation" in str(answer.error):
        return ()
    listed = json.loads(str(answer.value()))
    return tuple(Coordinator(str(row["name"]), str(row["lockId"]), str(row["status"])) for row in listed)


def disk_used(fields: Fields) -> float | None:
    """Return the used share of the broker's disk. A broker reports 0.0 until it has measured its disk."""
    return fields.optional_share("DiskStoreUsage") or None


def limits_of_server(fields: Fields, up_ms: int) -> tuple[Obstacle, ...]:
    """Find a disk over its limit, or one that the broker has not measured yet. After `_MEASURED_WITHIN_MS` a broker
    without a usage counts as one that does not measure."""
    used, most = disk_used(fields), fields.optional_share("MaxDiskUsage")
    if most is None or most < 0 or not fields.has("DiskStoreUsage"):
        return ()
    if used is None and up_ms < _MEASURED_WITHIN_MS:
        text = f"it started {up_ms / 1000:.0f} s ago and has not measured its disk: whether clients can send is unknown"
        return (Obstacle(text, "Run the same command again in a few seconds.", known=False),)
    if used is None or used * 100 <= most:
        return ()
    text = f"its disk is {used:.0%} full, over its max-disk-usage of {most:.0f} %: no client can send"
    return (Obstacle(text, "Make room on that disk, or raise max-disk-usage in its broker.xml."),)


def limits_of_addresses(reader: Reader, view: Broker, *, timeout_s: float) -> tuple[Obstacle, ...]:
    """Find addresses that are paused, blocked, or at a limit that keeps messages out, and disabled queues."""
    business = {queue.address for queue in view.business.values()}
    server, addresses, queues = reader.read(
        [
            Read(beans.server(view.broker), LIMITS),
            Read(beans.address(view.broker), _ADDRESS),
            # A reading of attributes fails if a version has none of them; each version has `Paused`.
            Read(beans.queue(view.broker), (*PAUSES, "Enabled")),
        ],
        timeout_s=timeout_s,
    )
    rows = {
        name: row for bean, row in addresses.beans() for name in (beans.parts(bean)["address"],) if name in business
    }
    fields = Fields(beans.server(view.broker), server.value())
    used, most = fields.optional_share("AddressMemoryUsage"), fields.optional_share("GlobalMaxSize")
    # All addresses together reach the global limit.
    is_full = used is not None and most is not None and 0 < most <= used
    # A full address that fails or drops shows `Paging`; a full address that blocks shows a percentage above its limit.
    at_limit = sorted(
        name
        for name, row in rows.items()
        if is_full
        or (row.has("AddressLimitPercent") and row.number("AddressLimitPercent") >= _FULL)
        or row.flag("Paging")
    )
    return (
        *_flagged(rows, "Paused", "are paused: their clients get nothing", "Resume them in the console."),
        *_flagged(
            rows, "BlockedViaManagement", "are blocked by management: their senders wait", "unblock() them there."
        ),
        *_disabled(view, {beans.parts(bean)["queue"]: row for bean, row in queues.beans()}),
        *_kept_out(at_limit, policies(reader, view, at_limit, timeout_s), everywhere=is_full),
    )


def _flagged(rows: Mapping[str, Fields], flag: str, what: str, remedy: str) -> Iterator[Obstacle]:
    if names := sorted(name for name, row in rows.items() if row.has(flag) and row.flag(flag)):
        yield Obstacle(f"addresses {what}: {brief(names)}", remedy, tuple(names))


def _disabled(view: Broker, rows: Mapping[str, Fields]) -> Iterator[Obstacle]:
    """Find disabled queues, to which no message is routed, if the version has that flag."""
    queues = [queue for name, queue in view.business.items() if name in rows and rows[name].has("Enabled")]
    if disabled := [queue for queue in queues if not rows[queue.name].flag("Enabled")]:
        names = brief([queue.name for queue in disabled])
        text = f"queues are disabled, so messages sent to them are confirmed and dropped: {names}"
        yield Obstacle(text, "enable() them in the console.", tuple(queue.address for queue in disabled))


def policies(reader: Reader, view: Broker, names: Iterable[str], timeout_s: float = READ_S) -> Mapping[str, str]:
    """Return the policy of each address for the time when it is full. Raises `BrokerError`."""
    server, asked = beans.server(view.broker), [*names]
    settings = [Query(server, Listing.ADDRESS_SETTINGS, (name,)) for name in asked]
    answers = reader.read(settings, timeout_s=timeout_s) if asked else []
    try:
        texts = [json.loads(str(answer.value())) for answer in answers]
        return {name: str(t.get("addressFullMessagePolicy")) for name, t in zip(asked, texts, strict=True)}
    except (ValueError, AttributeError) as error:
        raise BadValue(f"{reader.url}: address settings are not as expected: {error}") from error


def _kept_out(names: Iterable[str], policies: Mapping[str, str], *, everywhere: bool) -> Iterator[Obstacle]:
    for policy, effect in _POLICIES.items():
        if full := [name for name in names if policies[name] == policy]:
            limit = "the broker's memory is at its global-max-size" if everywhere else "at their limit"
            text = f"addresses with address-full-policy {policy}, {limit}: {effect}: {brief(full)}"
            yield Obstacle(text, "Let their messages be consumed, or raise that limit in broker.xml.", tuple(full))


Origin = tuple[str, int]
"""The broker or the site to which a message was sent first, and its number there."""


def identity(origin: Origin) -> str:
    """Return a message's identity as journal, report and operator see it."""
    return f"{origin[0]}:{origin[1]}"


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message's number at its broker, and its properties without prefixes: those of its `sender`, and those that the
    `broker` added. Both are None if the row does not distinguish them."""

    number: int
    sender: Mapping[str, Any] | None
    broker: Mapping[str, Any] | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> BrowsedMessage:
        """Read a message's row. A row that is no message raises KeyError, TypeError, ValueError or AttributeError."""
        number = int(str(row["messageID"]))
        sections = _SECTIONS.get(str(row.get("protocol")))
        if sections is None:
            return cls(number, None, None)
        named = {name: value for part in _PARTS for name, value in (row.get(part) or {}).items()}
        by_section = (
            {name.removeprefix(section): value for name, value in named.items() if name.startswith(section)}
            for section in sections
        )
        return cls(number, *by_section)


def probe(reader: Reader, signs: Sequence[str], *, timeout_s: float = READ_S) -> Probed | None:
    """Find the broker there; return None if no broker of this family answers. Raises `BrokerError`."""
    try:
        broker = find_broker(reader, timeout_s=timeout_s)
    except NoSuchBean:
        return None
    post = Post()
    server_answer = post.ask(Read(beans.server(broker), ("Version", "NodeID", "Active", *GROUP)))
    topology = post.ask(Query(beans.server(broker), Listing.TOPOLOGY))
    acceptors = post.ask(Read(beans.acceptor(broker), ACCEPTOR))
    searches = {sign: post.ask(Search(beans.server(broker) + sign)) for sign in signs}
    post.send(reader, timeout_s=timeout_s)
    server = server_answer.fields()
    version, node = server.text("Version"), server.text("NodeID")
    try:
        active = not server.has("Active") or server.flag("Active")
        group = read_group(reader.url, server, node, topology, active=active)
    except Passive:
        return Probed(Family.ARTEMIS, broker, version, [], node=node, active=False)
    listeners = [acceptor(bean, row) for bean, row in acceptors.beans()]
    # Nobody connects from outside to a listener within the process, or to the listener of the nodes.
    internal = {None, group.port if group.has_nodes or group.cluster else None}
    outside = [
        Listener(listener.name, listener.protocols, listener.port, listener.started)
        for listener in sorted(listeners, key=lambda acceptor: acceptor.name)
        if listener.port not in internal
    ]
    return Probed(
        Family.ARTEMIS,
        broker,
        version,
        outside,
        {sign: tuple(map(str, search.value())) for sign, search in searches.items()},
        node=node,
        others=tuple(node.rpartition(":")[0] for node in group.nodes),
    )


_READ_S: Final = 2.0
WRITE_S: Final = 5.0
_EXISTS: Final = "AMQ229019"


def _node_answer(answer: Answer) -> group.NodeAnswer:
    """Read a node's answer; the oldest versions report only whether it is a passive backup. Raises `BrokerError`."""
    [(bean, fields)] = answer.beans() or [("", Fields("the broker", {}))]
    is_passive = fields.flag("Backup") or (fields.has("Active") and not fields.flag("Active"))
    policy = (fields.optional_text("HAPolicy") if fields.has("HAPolicy") else None) or ""
    has_clock = fields.has("CurrentTimeMillis") and fields.has("UptimeMillis")
    reading = NodeReading(
        "",
        NodeState.PASSIVE if is_passive else NodeState.ACTIVE,
        node=fields.text("NodeID"),
        version=fields.text("Version"),
        in_sync=fields.flag("ReplicaSync") if policy.startswith("Replication") and fields.has("ReplicaSync") else None,
        pending=fields.number("PendingMirrorAcks") if fields.has("PendingMirrorAcks") else 0,
    )
    began_ms = fields.number("CurrentTimeMillis") - fields.number("UptimeMillis") if has_clock else None
    return group.NodeAnswer(beans.parts(bean)["broker"], reading, began_ms)


_NODE_ATTRIBUTES: Final = (
    "Name", "Active", "Backup", "NodeID", "Version", "HAPolicy", "ReplicaSync", "CurrentTimeMillis", "UptimeMillis",
    "PendingMirrorAcks",
)  # fmt: skip
# Each node has its own name for the broker, and may start the broker again in the same process.
NODE_FAMILY: Final = group.Family(
    Read(beans.ANY_SERVER, _NODE_ATTRIBUTES), _node_answer, lambda broker: f"broker={beans.quote(broker)}"
)


class Session(session.Session[B_co]):
    family = NODE_FAMILY
    settings: Settings
    dialect: ClassVar[Dialect] = Dialect()
    find_broker = staticmethod(find_broker)

    def _config(self) -> Config:
        return replace(super()._config(), mirror=self.settings.link_listeners, cluster=self.settings.cluster or ())

    def store(self) -> Store:
        return Documents(self)

    def _read_extra(self, view: B_co, scope: ReadScope, timeout_s: float) -> B_co:  # type: ignore[misc] # its own
        if ReadScope.LIMITS not in scope:
            return view
        at_addresses = limits_of_addresses(self.reader(), view, timeout_s=timeout_s)
        # The rights that a lasting fence leaves to other roles matter only behind open listeners.
        no_role = view.open and view.fence.roles_revoked and serves_no_role(self.reader(), view)
        return replace(view, obstacles=(*view.obstacles, *at_addresses), serves_no_role=no_role)

    def dispatch(self) -> Mapping[str, tuple[int, bool]]:
        return dispatch(self.reader(), self.last_view())

    def uncovered(self) -> list[str]:
        """List the addresses of clients' queues at which the fenced roles still have rights."""
        view = self.last_view()
        business = {queue.address for queue in view.business.values()}
        rows = rights_by_address(self.reader(), view) if view.config.lasting is not None else ()
        return sorted(name for name, granted in rows if name in business and view.lets_in_by(granted))


class Documents:
    def __init__(self, session: Session[Any]) -> None:
        self.site, self.pair = session.site, session.pair
        self._session = session
        self._wire: Transport | None = None

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def read(self, kind: str) -> tuple[int, Sequence[tuple[int, str]]]:
        requests, dialect = self._requests, self._session.dialect
        asked = [dialect.clock(requests.broker), Read(beans.documents(requests.broker), requests.attributes)]
        now, listed = Reader(self._open()).read(asked, timeout_s=_READ_S)
        texts = {
            row.any_text("Name"): requests.text(row) if requests.is_own(bean, row) else NOBODYS
            for bean, row in listed.beans()
        }
        return dialect.now_ms(Fields("the broker's clock", now.value())), numbered(texts, kind)

    def recent(self, kind: str) -> tuple[float, int, Sequence[tuple[int, str]]] | None:
        if (newest := self._session.newest) is None:
            return None
        began, view = newest
        texts = {**view.documents, **dict.fromkeys(view.forged, NOBODYS)}
        return boottime_s() - began, view.now_ms, numbered(texts, kind)

    def create(self, kind: str, number: int, text: str) -> bool:
        address = f"{OWN}{kind}.{self.site}"
        answer = self._change(self._requests.create(f"{address}.{number}", text, kind=address))
        if answer.error is not None and _EXISTS not in str(answer.error):
            raise Forbidden(str(answer.error))
        return answer.error is None

    def update(self, kind: str, number: int, text: str) -> None:
        address = f"{OWN}{kind}.{self.site}"
        self._change(self._requests.update(f"{address}.{number}", text, kind=address)).value()

    def delete(self, kind: str, number: int) -> None:
        self._change(self._requests.of_server(DELETE, f"{OWN}{kind}.{self.site}.{number}")).value()

    def why_forbidden(self) -> str | None:
        """Ask the broker whether this user may create documents; return None if it may, or if that is unknown."""
        server = beans.server(self._requests.broker)
        asked = Query(beans.SECURITY, Listing.MAY_CALL, (server, "createQueue", ["java.lang.String"]))
        answer = Reader(self._open()).read([asked], timeout_s=_READ_S)[0]
        return "this user may not create queues" if answer.error is None and answer.value() is False else None

    @property
    def _requests(self) -> ArtemisRequests:
        requests: ArtemisRequests = self._session.last_view().requests
        return requests

    def _change(self, asked: Request) -> Answer:
        return make_changes(self._open(), [change(asked)], timeout_s=WRITE_S)[0]

    def _open(self) -> Transport:
        if self._wire is None:
            self._wire = self._session.wire()
        return self._wire
