"""A kind of twin that only tests register: a mirror whose settings and first door are its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dr_ctl_lab.twin.host import Host
from dr_ctl_lab.twin.mirror.kind import KIND as MIRROR
from dr_ctl_lab.twin.parts import Acceptor


def settings(host: Host) -> Mapping[str, Any]:
    return {"port": host.stomp[1]}


KIND = replace(
    MIRROR, topology="folders", settings=settings, doors=(Acceptor("side", "STOMP", opens_at_boot=True), *MIRROR.doors)
)
