"""A kind of twin: the classes and settings of one topology's brokers and links."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dr_ctl_lab.twin.bean import Bean
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.direction import Direction
from dr_ctl_lab.twin.jolokia import Dialect, Policy
from dr_ctl_lab.twin.parts import Acceptor
from dr_ctl_lab.twin.stomp_connection import StompConnection

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host


@dataclass(frozen=True, slots=True)
class Kind:
    """`broker` makes a broker from its peer's site and the arguments of every broker. `settings` returns a broker's
    entry in the settings file, without name and password."""

    topology: str
    joined: str  # the verb after "two brokers", in messages
    listeners: tuple[Acceptor, ...]  # acceptors of every broker, without ports
    broker: Callable[..., Broker]
    direction: Callable[[Any, Any], Direction[Any]]
    beans: Callable[[Any], Iterator[Bean]]
    dialect: Dialect
    settings: Callable[[Host], Mapping[str, Any]]
    session: Callable[..., StompConnection]  # the server side of a STOMP connection
    # Beans of a passive node's console; without this function a passive node has no console.
    passive: Callable[[Any, Host], Iterator[Bean]] | None = None
    # Settings of the whole installation.
    installation: Mapping[str, Any] = field(default_factory=dict)
    # Settings of a site, beside its brokers.
    site: Mapping[str, Any] = field(default_factory=dict)
    # The console's access policy; without one everything is allowed.
    policy: Callable[[Any], Policy] | None = None
    # Users and roles that are added to those of every twin.
    roles: Mapping[str, str] = field(default_factory=dict)
    # Whether a site is activated by a broker's own operation, whatever listeners a start opens.
    activates: bool = False
    # Whether an installation has exactly one pair.
    one_pair: bool = False
