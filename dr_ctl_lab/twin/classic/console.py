"""The console of a Classic broker, and its entry in the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.jolokia import Dialect

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host

CONSOLE: Final = Dialect(
    agent="1.7.1",
    protocol="7.2",
    product="activemq",
    path="/api/jolokia",
    page="<html><body><h2>HTTP ERROR 404 Not Found</h2></body></html>",
    refuses_in_json=True,
    backs_off=False,
    servlet=True,
)


def settings(host: Host) -> Mapping[str, Any]:
    return {
        "jolokia": f"{host.jolokia}/",
        "stomp": stomp(host, host.broker.clients_listener),
        "username": host.admin[0],
        "clients": [host.broker.clients_listener],
    }


def stomp(host: Host, listener: str) -> str:
    return f"stomp://{host.stomp[0]}:{host.acceptors[listener].port}"
