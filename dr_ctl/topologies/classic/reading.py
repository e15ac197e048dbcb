"""Reads a Classic broker: sends the reads in one POST, and makes values of the answers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from dr_ctl.core.errors import Passive
from dr_ctl.jolokia.client import READ_S, Answer, Read, Reader, Search
from dr_ctl.jolokia.http import BadValue, NoSuchBean, PolicyRefused
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.beans import EVERY, Permit
from dr_ctl.topologies.classic.broker import Network
from dr_ctl.topologies.common.view import Acceptor, Connection, Consumer, Queue
from dr_ctl.topologies.proposing import Family, Listener, Probed
from dr_ctl.topologies.topology import Obstacle

BROKER: Final = (
    "BrokerName", "BrokerId", "BrokerVersion", "Slave", "TransportConnectors", "StorePercentUsage",
    "MemoryPercentUsage", "TempPercentUsage",
)  # fmt: skip
QUEUE: Final = (
    "Name", "QueueSize", "InFlightCount", "EnqueueCount", "DequeueCount", "ExpiredCount", "ConsumerCount", "Paused",
    "DLQ",
)  # fmt: skip
CONSUMER: Final = ("DestinationName", "ClientId", "UserName", "MessageCountAwaitingAcknowledge", "Network")
CONNECTION: Final = ("Active", "ClientId", "RemoteAddress", "UserName", "NetworkConnection")
_FULL: Final = 100
# Each limit of a broker's systemUsage has a figure, an element in activemq.xml, and an effect where it is reached.
_LIMITS: Final = (
    ("StorePercentUsage", "storeUsage", "all who send durable messages wait"),
    ("MemoryPercentUsage", "memoryUsage", "all who send wait"),
    ("TempPercentUsage", "tempUsage", "all who send non-durable messages wait"),
)
# The protocols of a connector by its scheme; connectors of any other scheme speak OpenWire.
_SCHEMES: Final[Mapping[str, frozenset[str]]] = {
    "stomp": frozenset({"STOMP"}),
    "amqp": frozenset({"AMQP"}),
    "mqtt": frozenset({"MQTT"}),
    "ws": frozenset({"WS"}),
    "wss": frozenset({"WS"}),
    "http": frozenset({"HTTP"}),
    "auto": frozenset({"OPENWIRE", "STOMP", "AMQP", "MQTT"}),  # decided by the first bytes
}
_OPENWIRE: Final = frozenset({"OPENWIRE"})


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of one broker, as `values` by the names of a view. Network connectors consume the queues `bridged`,
    and `extra` are the answers to a topology's own reads."""

    values: Mapping[str, Any]
    bridged: frozenset[str]
    extra: tuple[Answer, ...] = ()


def answered(
    fields: Fields,
    consumers: Sequence[tuple[Consumer, bool]],
    connections: Sequence[tuple[Connection, bool]] = (),
    extra: Sequence[Answer] = (),
    **values: Any,
) -> Answered:
    """Make an answer; the flags say whether a consumer or a connection is a network connector's."""
    percent = fields.optional_share("StorePercentUsage")
    values |= {
        "broker": fields.text("BrokerName"),
        "version": fields.text("BrokerVersion"),
        "node": fields.text("BrokerName"),
        "start": fields.text("BrokerId"),
        "connections": tuple(connection for connection, network in connections if not network),
        "bridges": tuple(connection for connection, network in connections if network),
        "consumers": tuple(consumer for consumer, network in consumers if not network),
        "disk_used": percent / 100 if percent is not None else None,
        "obstacles": tuple(_limits_reached(fields)),
    }
    return Answered(values, frozenset(consumer.queue for consumer, network in consumers if network), tuple(extra))


def _limits_reached(fields: Fields) -> Iterator[Obstacle]:
    for figure, element, effect in _LIMITS:
        if (percent := fields.optional_share(figure)) is not None and percent >= _FULL:
            text = f"it uses {percent:.0f} % of its {element}: {effect}"
            yield Obstacle(text, f"Let messages be consumed there, or raise {element} in its activemq.xml.")


def ask(reader: Reader, broker: str, *, timeout_s: float = READ_S, extra: Sequence[Read] = ()) -> Answered:
    """Read everything of a broker, and the `extra` reads of a topology. Raises `BrokerError`."""
    answers = reader.read(
        [
            Read(beans.broker(broker), BROKER),
            Read(beans.connector(broker), ("Started",)),
            Read(beans.network(broker), ("Name",)),
            Read(beans.all_bridges(broker), ("RemoteBrokerName",)),
            Read(beans.all_consumers(broker), CONSUMER),
            Read(f"{beans.connector(broker)},connectionViewType=clientId,connectionName=*", CONNECTION),  # each once
            Search(beans.all_transactions(broker)),
            *(test for permit in EVERY for test in permit.tests(broker)),
            *extra,
            # Queues are read last, because the time of the reading is that of the answer.
            Read(beans.queue(broker), QUEUE),
        ],
        timeout_s=timeout_s,
    )
    broker_answer, listeners, connecting, bridges, consumers, connections, prepared, *others, queues = answers
    fields = _active(reader, broker, broker_answer, timeout_s)
    connectors = tuple(_connectors(listeners, fields.mapping("TransportConnectors")))
    ports = {beans.part(connector.name): connector.port for connector in connectors}
    # A client that gives up its login can leave the bean of a stopped connection.
    live = [(bean, row) for bean, row in connections.beans() if row.flag("Active")]
    with_flags = tuple((_connection(bean, row, ports), row.flag("NetworkConnection")) for bean, row in live)
    by_client = {connection.client: connection for connection, _ in with_flags}
    consuming = tuple((_consumer(row, by_client), row.flag("Network")) for _, row in consumers.beans())
    held = Counter[str]()  # the unacknowledged messages of each queue's consumers
    for consumer, _ in consuming:
        held[consumer.queue] += consumer.holds or 0
    return answered(
        fields,
        consuming,
        with_flags,
        others[2 * len(EVERY) :],
        acceptors=connectors,
        networks=tuple(networks(connecting, bridges)),
        queues=tuple(
            replace(row, delivering=_delivering(row.delivering, held[row.name]))
            for row in (queue(bean, fields) for bean, fields in queues.beans())
        ),
        prepared=tuple(sorted(beans.parts(str(name))["xid"] for name in prepared.value())),
        denied=denied(others),
    )


def _active(reader: Reader, broker: str, broker_answer: Answer, timeout_s: float) -> Fields:
    """Return the broker's own attributes. Raises `Passive` for a broker that waits for its store, which may report
    nothing else."""
    name = beans.broker(broker)
    try:
        fields = Fields(name, broker_answer.value())
        must_be_active(reader.url, fields)
    except BadValue:
        answer = reader.read([Read(name, ("Slave",))], timeout_s=timeout_s)[0]
        must_be_active(reader.url, Fields(name, answer.value()))
        raise
    return fields


def must_be_active(url: str, fields: Fields) -> None:
    if fields.flag("Slave"):
        raise Passive(f"{url}: the broker there is passive: it waits for its store, which another one has")


def find_broker(reader: Reader, *, timeout_s: float = READ_S) -> str:
    """Find the broker's own name; raises `NoSuchBean` where there is none or several."""
    names = reader.read([Search(beans.ANY_BROKER)], timeout_s=timeout_s)[0].value()
    if not isinstance(names, list) or len(names) != 1:
        count = len(names) if isinstance(names, list) else "no"
        raise NoSuchBean(f"{reader.url}: {count} brokers answer there; name one with `broker:`")
    name = reader.read([Read(str(names[0]), ("BrokerName",))], timeout_s=timeout_s)[0].value()
    return Fields(str(names[0]), name).text("BrokerName")


def dispatch(reader: Reader, broker: str) -> dict[str, tuple[int, bool]]:
    consumers, queues = reader.read(
        [
            Read(beans.all_consumers(broker), ("DestinationName", "MessageCountAwaitingAcknowledge")),
            Read(beans.queue(broker), ("Name", "InFlightCount", "Paused")),
        ]
    )
    held = Counter[str]()
    for _, row in consumers.beans():
        held[row.text("DestinationName")] += row.number("MessageCountAwaitingAcknowledge")
    rows = {row.text("Name"): row for _, row in queues.beans()}
    return {
        name: (_delivering(row.number("InFlightCount"), held[name]), row.flag("Paused")) for name, row in rows.items()
    }


def _delivering(counted: int, held: int) -> int:
    """Return the larger count: a queue's count is below zero after a browser has left."""
    return max(counted, held, 0)


def opened(connectors: Answer, clients: Iterable[str]) -> tuple[str, ...]:
    started = {beans.parts(bean)["connectorName"] for bean, row in connectors.beans() if row.flag("Started")}
    return tuple(name for name in clients if beans.part(name) in started)


def queue(bean: str, fields: Fields) -> Queue:
    """Read a queue. Its counter of removed messages includes expired ones, which were not acknowledged."""
    name, removed = fields.text("Name"), fields.number("DequeueCount")
    return Queue(
        name=name,
        address=name,
        routing="queue",
        bean=bean,
        depth=fields.number("QueueSize"),
        delivering=fields.number("InFlightCount"),
        scheduled=0,
        consumers=fields.number("ConsumerCount"),
        paused=fields.flag("Paused"),
        added=fields.number("EnqueueCount"),
        acked=removed - fields.number("ExpiredCount"),
        removed=removed,
        dead_letter_address=name if fields.flag("DLQ") or name == DEAD_LETTERS else None,
    )


# The dead letter queue unless a policy names another; the broker marks it as such only after its first message.
DEAD_LETTERS: Final = "ActiveMQ.DLQ"


def denied(answers: Sequence[Answer]) -> frozenset[Permit]:
    asked = zip(EVERY, answers[::2], answers[1::2], strict=False)
    return frozenset(permit for permit, *both in asked if any(isinstance(may.error, PolicyRefused) for may in both))


def _connectors(answer: Answer, addresses: Mapping[str, str]) -> Iterable[Acceptor]:
    by_part = {beans.part(name): (name, address) for name, address in addresses.items()}
    for bean, fields in answer.beans():
        encoded = beans.parts(bean)["connectorName"]
        name, address = by_part.get(encoded, (encoded, ""))
        scheme = urlsplit(address).scheme.partition("+")[0]
        yield Acceptor(
            name=name,
            bean=bean,
            started=fields.flag("Started"),
            port=_port(address),
            protocols=_SCHEMES.get(scheme, _OPENWIRE),
            opens_at_boot=True,  # no setting changes this
        )


def _port(address: str) -> int | None:
    try:
        return urlsplit(address).port
    except ValueError:
        return None


def networks(connectors: Answer, bridges: Answer) -> Iterable[Network]:
    to = {
        beans.parts(bean)["networkConnectorName"]: row.optional_text("RemoteBrokerName")
        for bean, row in bridges.beans()
    }
    for bean, fields in connectors.beans():
        yield Network(fields.text("Name"), bean, to.get(beans.parts(bean)["networkConnectorName"]))


def _consumer(fields: Fields, connections: Mapping[str, Connection]) -> Consumer:
    """Read a consumer. Its bean shows no address, and its user only in some versions."""
    client = fields.any_text("ClientId")
    remote, user = (known.remote, known.user) if (known := connections.get(client)) is not None else ("", "")
    return Consumer(
        queue=fields.text("DestinationName"),
        port=None,
        client=client,
        remote=remote,
        user=fields.any_text("UserName") or user,
        holds=fields.number("MessageCountAwaitingAcknowledge"),
    )


def _connection(bean: str, fields: Fields, ports: Mapping[str, int | None]) -> Connection:
    connector = beans.parts(bean)["connectorName"]
    return Connection(
        id=fields.any_text("ClientId"),
        port=ports.get(connector),
        remote=fields.any_text("RemoteAddress"),
        client=fields.any_text("ClientId"),
        user=fields.any_text("UserName"),
        protocol=connector,
    )


def probe(reader: Reader, signs: Sequence[str], *, timeout_s: float = READ_S) -> Probed | None:
    """Find the broker there; return None if no broker of this family answers. Raises `BrokerError`."""
    try:
        broker = find_broker(reader, timeout_s=timeout_s)
    except NoSuchBean:
        return None
    answer = ask(reader, broker, timeout_s=timeout_s)
    answers = reader.read([Search(beans.broker(broker) + sign) for sign in signs], timeout_s=timeout_s)
    values, from_brokers = answer.values, Counter(bridge.protocol for bridge in answer.values["bridges"])
    listeners = [
        Listener(connector.name, connector.protocols, connector.port, connector.started, from_brokers[connector.name])
        for connector in sorted(values["acceptors"], key=lambda acceptor: acceptor.name)
    ]
    return Probed(
        Family.CLASSIC,
        broker,
        values["version"],
        listeners,
        {sign: tuple(map(str, answer.value())) for sign, answer in zip(signs, answers, strict=True)},
    )
