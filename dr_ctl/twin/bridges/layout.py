"""What the diverts, buffers and bridges of a site are called, and who its users are."""

from __future__ import annotations

from typing import Any, Final

from dr_ctl.twin.bridges.divert import ADDS_HEADERS, ORIGIN, TRANSFORMER

CLIENTS, BRIDGE, AGENT = "app", "bridge", "agent"  # users, each with a role of the same name
NOTIFICATIONS: Final = "notification.idempotent-consumer"
NOTIFIED: Final = f"{NOTIFICATIONS}.processor"
QUEUE_HEADER: Final = "DR_QUEUE"
ID_HEADER: Final = "order_id"


def buffer(peer: str, address: str) -> dict[str, Any]:
    return {"name": f"mirror.{peer}.{address}", "address": f"mirror.{address}", "routing-type": "MULTICAST"}


def divert(site: str, address: str) -> dict[str, Any]:
    """What copies a queue's messages into its buffer, but for those that came from the peer: they would go in a circle.
    Notifications are for the peer alone."""
    return {
        "name": f"divert.{address}",
        "address": address,
        "forwarding-address": f"mirror.{address}",
        "exclusive": address == NOTIFICATIONS,
        "filter-string": f"{ORIGIN} = '{site}' OR {ORIGIN} IS NULL",
    }


def bridge(site: str, peer: str, address: str, login: tuple[str, str]) -> dict[str, Any]:
    return {
        "name": f"bridge.mirror.{peer}.{address}",
        "queue-name": f"mirror.{peer}.{address}",
        "forwarding-address": address,
        "ha": True,
        TRANSFORMER: {"class-name": ADDS_HEADERS, "properties": {ORIGIN: site}},
        "static-connectors": [connector(peer)],
        "user": login[0],
        "password": login[1],
        "retry-interval": 500,
        "retry-interval-multiplier": 1.0,
        "reconnect-attempts": -1,
        "initial-connect-attempts": -1,
        "use-duplicate-detection": True,
    }


def connector(peer: str) -> str:
    return f"{peer}-connector"
