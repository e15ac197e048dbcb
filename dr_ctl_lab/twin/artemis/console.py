"""The console of an Artemis broker, and what a settings file says of such a broker."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.jolokia import Dialect

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host

# The console of Artemis; each release adds its agent, its protocol and its peculiarities.
console: Final = partial(
    Dialect,
    product="Artemis",
    path="/console/jolokia",
    page="<!doctype html><html><head><title>Apache Artemis Console</title></head><body></body></html>",
)


def settings(host: Host, *, link: str = "mirror") -> Mapping[str, Any]:
    """`link`: the acceptor of the peer's link, which the settings call by the same name."""
    return {
        "jolokia": host.jolokia,
        "stomp": "stomp://{}:{}".format(*host.stomp),
        "username": host.admin[0],
        "clients": ["clients"],
        link: [link],
    }
