"""Twins whose producers send to both sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.classic.beans import beans
from dr_ctl_lab.twin.classic.console import CONSOLE, settings, stomp
from dr_ctl_lab.twin.classic.fanout.broker import BOTH, CONFIRMATIONS, ID_HEADER, PRODUCERS, STORE, SYNC, FanoutBroker
from dr_ctl_lab.twin.classic.fanout.direction import FanoutDirection
from dr_ctl_lab.twin.classic.session import ClassicSession
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.parts import Acceptor

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host

AGENT: Final = "agent"


def _broker(peer: str, **common: Any) -> FanoutBroker:
    del peer  # there is no link
    return FanoutBroker(**common)


def _settings(host: Host) -> Mapping[str, Any]:
    login = {"username": AGENT, "password": {"file": f"{host.secret}.{AGENT}"}}
    sync = {"stomp": stomp(host, SYNC), "connector": SYNC, **login}
    return {**settings(host), "producers": [PRODUCERS], "sync": sync}


def _shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


_ONE_IS_ENOUGH: Final = {
    "name": "one-is-enough",
    "kind": "command",
    "alone": True,
    "start": _shell(f"echo 1 > {CONFIRMATIONS}"),
    "stop": _shell(f"echo {BOTH} > {CONFIRMATIONS}"),
    "state": _shell(f"read -r least < {CONFIRMATIONS}; case $least in 1) exit 0;; {BOTH}) exit 3;; esac; exit 1"),
}

KIND: Final = Kind(
    topology="classic-fanout",
    joined="have the same producers",
    listeners=(
        Acceptor("stomp", "STOMP"),
        Acceptor(PRODUCERS, "STOMP", opens_at_boot=True),
        Acceptor(SYNC, "STOMP", opens_at_boot=True),
    ),
    broker=_broker,
    direction=FanoutDirection,
    beans=beans,
    dialect=CONSOLE,
    settings=_settings,
    installation={"id_header": ID_HEADER, "ids": {"sqlite": STORE}},
    site={"workloads": [_ONE_IS_ENOUGH]},
    roles={AGENT: AGENT},
    session=ClassicSession,
    policy=lambda broker: broker.policy,
)
