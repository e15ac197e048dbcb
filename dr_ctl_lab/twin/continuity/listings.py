"""The plugin's bridges and receivers in the broker's listings, and messages as rows."""

from typing import Final

from dr_ctl_lab.twin.artemis.listings import ROUTED_ANYCAST, Row, clients, clients_consumers, consumer, date
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.messages import Message

_INSIDE: Final = "invm:1"
# This version lists fewer fields than later ones.
_COLUMNS: Final = (
    "id", "session", "clientID", "user", "protocol", "queue", "queueType", "filter", "address", "localAddress",
    "remoteAddress", "creationTime",
)  # fmt: skip


def connections(broker: ContinuityBroker) -> list[Row]:
    """The peer's bridges, the plugin's own sessions, and the clients."""
    port = broker.acceptors["mirror"].port
    inside = [(_INSIDE, _INSIDE)] * (1 + len(broker.flows))
    outside = [(f"/127.0.0.1:{number}", f"tcp:///127.0.0.1:{port}") for number in range(1, broker.incoming + 1)]
    rows: list[Row] = [
        {
            "connectionID": f"{broker.node[:8]}{number}",
            "remoteAddress": remote,
            "users": "admin",
            "creationTime": date(broker.start_ms),
            "implementation": "RemotingConnectionImpl",
            "protocol": "CORE",
            "clientID": "",
            "localAddress": local,
            "sessionCount": 1,
        }
        for number, (remote, local) in enumerate([*inside, *outside])
    ]
    return rows + _with_schemes(clients(broker))


def consumers(broker: ContinuityBroker) -> list[Row]:
    """The plugin's receivers and the clients' consumers; bridges are not listed."""
    queues = [broker.service.into, *(flow.in_acks for flow in broker.flows.values())]
    rows = [
        consumer(
            broker,
            queue.name,
            id=str(queue.number),
            session=broker.node,
            clientID="",
            user="admin",
            protocol="CORE",
            filter="",
            localAddress=_INSIDE,
            remoteAddress=_INSIDE,
            creationTime=date(broker.start_ms),
        )
        for queue in queues
    ]
    return [{key: row[key] for key in _COLUMNS} for row in rows + _with_schemes(clients_consumers(broker))]


def _with_schemes(rows: list[Row]) -> list[Row]:
    """The clients' addresses as this version writes them."""
    return [
        {**row, "remoteAddress": f"/{row['remoteAddress']}", "localAddress": f"tcp:///{row['localAddress']}"}
        for row in rows
    ]


def row(message: Message) -> Row:
    """The row of a message, with properties beside the fields."""
    fields: Row = {
        "messageID": message.number,
        "address": message.address,
        "type": 3 if message.text else 4,
        "durable": message.durable,
        "expiration": 0,
        "priority": message.priority,
        "timestamp": message.timestamp_ms,
        **message.headers,
        **message.longs,
    }
    return {**fields, "_AMQ_ROUTING_TYPE": ROUTED_ANYCAST} if message.anycast else fields
