"""Connections with those of the peer's bridges. Lists of consumers have no bridges."""

from dr_ctl_lab.twin.artemis.listings import Row, clients, date
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.bridges.layout import BRIDGE


def connections(broker: BridgesBroker) -> list[Row]:
    port = broker.acceptors[broker.peers_listener].port
    rows: list[Row] = [
        {
            "connectionID": f"{broker.node[:8]}{number}",
            "remoteAddress": f"127.0.0.1:{number}",
            "users": BRIDGE,
            "creationTime": date(broker.start_ms),
            "implementation": "RemotingConnectionImpl",
            "protocol": "CORE",
            "clientID": "",
            "localAddress": f"127.0.0.1:{port}",
            "sessionCount": 2,
            "proxyAddress": "",
            "proxyProtocolVersion": "",
        }
        for number in range(1, broker.incoming + 1)
    ]
    return rows + clients(broker)
