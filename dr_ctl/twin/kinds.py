"""The kinds of twins there are, by the topology that joins their sites: what of a broker each makes differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dr_ctl.core.errors import UsageError
from dr_ctl.twin.beans import Bean
from dr_ctl.twin.broker import Broker
from dr_ctl.twin.continuity.beans import beans as continuity_beans
from dr_ctl.twin.continuity.broker import ContinuityBroker
from dr_ctl.twin.continuity.way import ContinuityWay
from dr_ctl.twin.jolokia import Dialect
from dr_ctl.twin.mirror.beans import beans as mirror_beans
from dr_ctl.twin.mirror.broker import MirrorBroker
from dr_ctl.twin.mirror.outflow import Link
from dr_ctl.twin.mirror.way import MirrorWay
from dr_ctl.twin.security import APPS
from dr_ctl.twin.way import Way

MIRROR: Final = "artemis-mirror"
CONTINUITY: Final = "artemis-continuity"


@dataclass(frozen=True, slots=True)
class Kind:
    """How the brokers of one topology are made: `broker` is told its peer's site; `settings` are those of each broker
    that only this topology has."""

    topology: str
    broker: Callable[..., Broker]
    way: Callable[[Any, Any], Way[Any]]
    beans: Callable[[Any], Iterator[Bean]]
    dialect: Dialect
    protocols: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)


def _mirror(peer: str, **told: Any) -> Broker:
    return MirrorBroker(link=Link(peer, 0), **told)


def _continuity(peer: str, **told: Any) -> Broker:
    del peer  # its bridges are not named after it
    return ContinuityBroker(**told)


_KINDS: Final = {
    each.topology: each
    for each in (
        Kind(
            MIRROR,
            _mirror,
            MirrorWay,
            mirror_beans,
            Dialect("2.4.3", "8.1"),
            {"clients": "CORE,AMQP,STOMP", "mirror": "AMQP"},
            {"lasting_fence": {"roles": [APPS]}},
        ),
        Kind(
            CONTINUITY,
            _continuity,
            ContinuityWay,
            continuity_beans,
            Dialect("1.3.7", "7.2", forbids=True, refuses_in_json=True, backs_off=False),
            {"clients": "CORE,AMQP,STOMP", "mirror": "CORE,AMQP"},
        ),
    )
}


def of(topology: str) -> Kind:
    """UsageError for a topology that no twin is made of."""
    if topology not in _KINDS:
        raise UsageError(f"no twin is made of {topology}", remedy=f"There are {' and '.join(_KINDS)}.")
    return _KINDS[topology]
