"""Names of the diverts, buffers and bridges of a site, and its users."""

from collections.abc import Mapping
from typing import Any, Final

from dr_ctl_lab.twin.bridges.divert import ADDS_HEADERS, ORIGIN, TRANSFORMER
from dr_ctl_lab.twin.security import ALL, CLIENTS_DO, EVERYTHING, Grants

ADMINS = "amq"
CLIENTS, BRIDGE, AGENT = "app", "bridge", "agent"  # users, each with a role of the same name
NOTIFICATIONS: Final = "notification.idempotent-consumer"  # an address, and its queue
QUEUE_HEADER: Final = "DR_QUEUE"
ID_HEADER: Final = "order_id"
# Clients may not delete, a bridge may only send, and only the processor consumes arrived ids.
GRANTS: Final[Mapping[str, Grants]] = {
    ALL: {ADMINS: EVERYTHING, CLIENTS: CLIENTS_DO, BRIDGE: frozenset({"send"})},
    NOTIFICATIONS: {
        ADMINS: frozenset({"send", "consume", "browse"}),
        CLIENTS: frozenset({"send"}),
        BRIDGE: frozenset({"send"}),
        AGENT: frozenset({"consume"}),
    },
}


def buffer(peer: str, address: str) -> dict[str, Any]:
    return {"name": f"mirror.{peer}.{address}", "address": f"mirror.{address}", "routing-type": "ANYCAST"}


def divert(site: str, address: str) -> dict[str, Any]:
    """The divert into a queue's buffer. Messages from the peer are excluded, or they would loop. Notifications leave
    their address."""
    return {
        "name": f"divert.{address}",
        "address": address,
        "forwarding-address": f"mirror.{address}",
        "exclusive": address == NOTIFICATIONS,
        "filter-string": f"{ORIGIN} = '{site}' OR {ORIGIN} IS NULL",
    }


def bridge(site: str, connectors: list[str], address: str, login: tuple[str, str]) -> dict[str, Any]:
    peer = connectors[0]
    return {
        "name": f"bridge.mirror.{peer}.{address}",
        "queue-name": f"mirror.{peer}.{address}",
        "forwarding-address": address,
        TRANSFORMER: {"class-name": ADDS_HEADERS, "properties": {ORIGIN: site}},
        "static-connectors": connectors,
        "user": login[0],
        "password": login[1],
        "retry-interval": 500,
        "retry-interval-multiplier": 1.0,
        "reconnect-attempts": -1,
        "initial-connect-attempts": -1,
        "use-duplicate-detection": True,
    }
