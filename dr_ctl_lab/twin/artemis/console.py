"""The console of an Artemis broker, and its entry in the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.jolokia import Dialect

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host

# Each release adds its agent, protocol and peculiarities.
console: Final = partial(
    Dialect,
    product="Artemis",
    path="/console/jolokia",
    page="<!doctype html><html><head><title>Apache Artemis Console</title></head><body></body></html>",
)


def settings(host: Host, *, link: str = "mirror") -> Mapping[str, Any]:
    """`link`: the acceptor of the peer's link, and its key in the settings."""
    return {
        "jolokia": host.jolokia,
        "stomp": "stomp://{}:{}".format(*host.stomp),
        "username": host.admin[0],
        "clients": ["clients"],
        link: [link],
    }
