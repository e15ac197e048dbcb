"""A network in memory: what a connection and a request meet at doors that are open, closed, frozen or not there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.core.errors import TimedOut, Unreachable
from dr_ctl.core.system import system
from dr_ctl.jolokia.client import Account, Read, Reader, Wire
from dr_ctl.jolokia.errors import NotConnected
from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.answers import Closed, Connected, Silent
from dr_ctl.stomp_io.client import greet
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.simulation.system import Simulation, simulated
from dr_ctl_lab.twin.console import ADMIN

CLIENT = Address("127.0.0.1", 1)


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[PlayedTwin]:
    with simulated(), PlayedTwin.up(tmp_path / "twin") as twin:
        yield twin


def look(twin: PlayedTwin, *, timeout_s: float = 5.0, url: str | None = None) -> object:
    host = twin.host("london")
    account = Account(url or host.jolokia, ADMIN, host.admin[1], "http://127.0.0.1")
    read = Read('org.apache.activemq.artemis:broker="london"', ("Started",))
    return Reader(Wire(account)).look([read], timeout_s=timeout_s)[0].value()


def door(twin: PlayedTwin, site: str = "london") -> tuple[Address, Login]:
    place = twin.site(site)
    return place.stomp, place.app


def took_s(began: float) -> float:
    return round(system().monotonic() - began, 3)


def test_a_console_answers_and_a_closed_port_refuses_at_once(twin: PlayedTwin) -> None:
    began = system().monotonic()

    assert look(twin) == {"Started": True}
    twin.kill("london")
    with pytest.raises(NotConnected) as refused:
        look(twin)

    assert refused.value.refused
    assert took_s(began) < 0.01


def test_a_frozen_console_is_waited_for_until_the_time_is_over_or_it_thaws(twin: PlayedTwin) -> None:
    twin.freeze("london")
    began = system().monotonic()
    with pytest.raises(TimedOut):
        look(twin, timeout_s=5.0)
    assert took_s(began) == pytest.approx(5.0, abs=0.01)

    def thaw() -> None:
        system().sleep(1.0)
        twin.thaw("london")

    system().start(thaw, "thaw")
    assert look(twin, timeout_s=5.0) == {"Started": True}
    assert took_s(began) == pytest.approx(6.0, abs=0.01)


def test_a_black_hole_takes_as_long_as_a_connection_may(twin: PlayedTwin) -> None:
    twin.swallow("london")
    began = system().monotonic()

    with pytest.raises(NotConnected, match="no connection within 2 s") as silent:
        look(twin, timeout_s=5.0)

    assert (silent.value.refused, took_s(began)) == (False, pytest.approx(2.0, abs=0.01))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://no-such-host.test:8161/console/jolokia", "its name cannot be resolved"),
        ("http://192.0.2.7:8161/console/jolokia", "no connection within"),
        ("http://127.0.0.1:1/console/jolokia", "connection refused"),
    ],
)
def test_what_is_not_there_is_told_as_at_a_wire(twin: PlayedTwin, url: str, says: str) -> None:
    with pytest.raises(Unreachable, match=says):
        look(twin, url=url)


def test_a_door_greets_refuses_and_is_silent(twin: PlayedTwin) -> None:
    assert isinstance(greet(*door(twin), None, timeout_s=1), Connected)
    assert isinstance(greet(*door(twin, "paris"), None, timeout_s=1), Closed)
    twin.freeze("london")
    began = system().monotonic()

    assert isinstance(greet(*door(twin), None, timeout_s=3), Silent)

    assert took_s(began) == pytest.approx(3.0, abs=0.01)


def test_nothing_of_it_is_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError("a socket")

    monkeypatch.setattr(socket, "socket", opened)
    with simulated() as simulation, PlayedTwin.up(tmp_path / "twin") as twin:
        assert isinstance(system(), Simulation)
        assert look(twin) == {"Started": True}
        assert isinstance(greet(*door(twin), None, timeout_s=1), Connected)
        assert simulation.wires is not None
