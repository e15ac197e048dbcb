"""The state of a new lab, before its start: ports, passwords, links."""

from __future__ import annotations

import secrets
from collections import defaultdict
from typing import TYPE_CHECKING

from dr_ctl_lab.lab.kinds import KINDS
from dr_ctl_lab.lab.ports import reserve_ports
from dr_ctl_lab.lab.state import PAIR, LabState, LinkState, SiteState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dr_ctl_lab.lab.spec import Options

PORTS_PER_LINK = 2
NODES = "ab"
MAX_FORWARDED = 10  # each needs a divert


def new(
    directory: Path,
    sites: tuple[str, str],
    queues: Sequence[str],
    topology: str,
    options: Options,
    pairs: int,
    nodes: int,
    *,
    replicates: bool,
    version: str,
) -> LabState:
    """Return the state of a new lab in `directory`, with reserved ports."""
    kind = KINDS.named(topology)
    app_password = secrets.token_urlsafe(18)  # the same at both sites, because clients move with the service
    passwords_of_users = {user: secrets.token_urlsafe(18) for user in kind.users}
    node_names = NODES[:nodes] if nodes > 1 else ("",)
    ports_of_each = (*kind.ports, *(kind.group.ports if kind.group is not None and nodes > 1 else ()))
    ports = iter(reserve_ports(2 * pairs * nodes * (len(ports_of_each) + PORTS_PER_LINK), directory))
    passwords = defaultdict[tuple[str, str], str](lambda: secrets.token_urlsafe(18))
    names = [PAIR, *(f"orders-{number}" for number in range(2, pairs + 1))]
    brokers = tuple(
        SiteState(
            name=name,
            ports={port_name: next(ports) for port_name in ports_of_each},
            admin_password=passwords[name, pair],
            app_password=app_password,
            pair=pair,
            others=passwords_of_users,
            node=node,
        )
        for pair in names
        for name in sites
        for node in node_names
    )
    directions = () if kind.link_target is None else (sites, sites[::-1])
    links = tuple(
        LinkState(source=source, target=target, port=next(ports), control=next(ports), pair=pair, node=node)
        for pair in names
        for source, target in directions
        for node in node_names
    )
    forwards = tuple(name for name in queues if kind.forwards(name))[:MAX_FORWARDED]
    return LabState(
        directory.name,
        brokers,
        links,
        tuple(queues),
        topology=topology,
        options=options,
        forwards=forwards,
        replicates=replicates,
        version=version,
    )
