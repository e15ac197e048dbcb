"""A kind of twin: all that the brokers of one topology, and the ways between them, make differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dr_ctl_lab.twin.bean import Bean
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.jolokia import Dialect, Policy
from dr_ctl_lab.twin.line import Line
from dr_ctl_lab.twin.parts import Acceptor
from dr_ctl_lab.twin.stomp import StompSession
from dr_ctl_lab.twin.way import Way

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host


@dataclass(frozen=True, slots=True)
class Kind:
    """`broker` is told its peer's site, and what every broker is told. `settings`: what of the settings file is about
    one broker, beside its name and its password."""

    topology: str
    joined: str  # what two such brokers do, to be read after them
    doors: tuple[Acceptor, ...]  # those that every broker has, without their ports
    broker: Callable[..., Broker]
    way: Callable[[Any, Any], Way[Any]]
    beans: Callable[[Any], Iterator[Bean]]
    dialect: Dialect
    settings: Callable[[Host], Mapping[str, Any]]
    session: Callable[..., Line] = StompSession  # what a client is served by, at a door that speaks STOMP
    # What of the settings file is about the whole installation.
    installation: Mapping[str, Any] = field(default_factory=dict)
    # What of it is about a site, beside its brokers.
    site: Mapping[str, Any] = field(default_factory=dict)
    # What the console of a broker lets through; without: everything.
    policy: Callable[[Any], Policy] | None = None
    # Of users that only its brokers have, or who have another one there: the role of each.
    roles: Mapping[str, str] = field(default_factory=dict)
