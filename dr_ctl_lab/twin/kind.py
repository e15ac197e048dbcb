"""A kind of twin: the peculiarities of one topology's brokers and of the ways between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dr_ctl_lab.twin.bean import Bean
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.jolokia import Dialect, Policy
from dr_ctl_lab.twin.line import Line
from dr_ctl_lab.twin.parts import Acceptor
from dr_ctl_lab.twin.way import Way

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host


@dataclass(frozen=True, slots=True)
class Kind:
    """`broker` gets its peer's site and the arguments of every broker. `settings` gives a broker's part of the settings
    file, beside name and password."""

    topology: str
    joined: str  # the verb after "two brokers", for people
    listeners: tuple[Acceptor, ...]  # listeners of every broker, without ports
    broker: Callable[..., Broker]
    way: Callable[[Any, Any], Way[Any]]
    beans: Callable[[Any], Iterator[Bean]]
    dialect: Dialect
    settings: Callable[[Host], Mapping[str, Any]]
    session: Callable[..., Line]  # the server side of a STOMP connection
    # What the console of a node shows that waits for its turn; without it such a node has no console.
    passive: Callable[[Any, Host], Iterator[Bean]] | None = None
    # Settings of the whole installation.
    installation: Mapping[str, Any] = field(default_factory=dict)
    # Settings of a site, beside its brokers.
    site: Mapping[str, Any] = field(default_factory=dict)
    # The console's policy; without one everything is allowed.
    policy: Callable[[Any], Policy] | None = None
    # Roles of users that only these brokers have, or that differ there.
    roles: Mapping[str, str] = field(default_factory=dict)
    # Whether the brokers themselves say when clients are let in, whatever their listeners do at a start.
    activates: bool = False
    # Whether an installation of it has one pair and no more.
    one_pair: bool = False
