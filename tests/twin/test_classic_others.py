"""Twins of Classic brokers that share a store: supervised, frozen, and with a lease that runs out."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
import yaml

from dr_ctl.processes.hooks import Place
from dr_ctl.stomp_io.address import Login
from dr_ctl.stomp_io.answers import Closed, Connected, Silent
from dr_ctl.stomp_io.client import greet
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.kinds import SHARED_STORE
from tests.twin.classic_subject import ORDERS, ClassicSubject
from tests.twin.subject import until

B = TypeVar("B", bound=Broker)
STORED = pytest.mark.parametrize("topology", [SHARED_STORE])


@pytest.fixture
def pair(twin: PlayedTwin) -> ClassicSubject:
    return ClassicSubject(twin)


def at(twin: PlayedTwin, site: str, kind: type[B]) -> B:
    found = twin.host(site).broker
    assert isinstance(found, kind)
    return found


def knocks(pair: ClassicSubject, site: str) -> Any:
    place = pair.place(site)
    return greet(place.stomp, Login("app", place.app_password), None, timeout_s=0.3)


def served(pair: ClassicSubject, site: str) -> bool:
    return isinstance(knocks(pair, site), Connected)


def sent(pair: ClassicSubject, count: int, site: str = "london") -> None:
    with pair.client(site) as client:
        for number in range(count):
            client.send(ORDERS, n=str(number))


def row(twin: PlayedTwin) -> tuple[str | None, int]:
    """Who has the store, and until when."""
    with twin.still():
        store = at(twin, "london", SharedStoreBroker).store
        return store.holder, store.until_ms


@STORED
def test_a_broker_that_is_kept_comes_back_by_itself_and_any_is_started_by_a_command(
    twin: PlayedTwin, pair: ClassicSubject
) -> None:
    settings = yaml.safe_load(twin.settings_path.read_text())
    words = settings["sites"]["london"]["brokers"][0]["process"]
    london = at(twin, "london", SharedStoreBroker)

    def ran(what: str) -> int:
        done = Place(twin.directory, frozenset()).run(what, words[what], 10, {})
        return int(str(done.evidence["exit_code"]))

    def stop() -> None:
        with twin.still():
            london.stop()

    assert ran("state") == 0
    stop()
    assert ran("state") == 3
    until(lambda: served(pair, "paris"))
    assert ran("start") == 0
    assert (ran("state"), london.running) == (0, True)
    london.supervised = True
    stop()
    until(lambda: ran("state") == 0)


@STORED
def test_a_frozen_holder_keeps_a_file(twin: PlayedTwin, pair: ClassicSubject) -> None:
    at(twin, "paris", SharedStoreBroker).tries_every_s = 0.01
    twin.freeze("london")

    assert isinstance(knocks(pair, "london"), Silent)
    assert isinstance(knocks(pair, "paris"), Closed)
    assert row(twin) == ("london", 0)
    twin.thaw("london")
    assert served(pair, "london")


@STORED
def test_a_frozen_holder_loses_a_lease_and_finds_out(twin: PlayedTwin, pair: ClassicSubject) -> None:
    london = at(twin, "london", SharedStoreBroker)
    with twin.still():
        london.store.lease(300, london.now_ms())
    sent(pair, 3)
    twin.freeze("london")

    until(lambda: served(pair, "paris"))

    holder, until_ms = row(twin)
    assert (holder, until_ms > london.now_ms() - 300) == ("paris", True)
    assert isinstance(knocks(pair, "london"), Silent)
    twin.thaw("london")
    assert isinstance(knocks(pair, "london"), Closed)
    until(lambda: london.running)
    assert (row(twin)[0], twin.depth("paris", ORDERS)) == ("paris", 3)


@STORED
def test_a_lease_of_a_dead_holder_runs_out(twin: PlayedTwin, pair: ClassicSubject) -> None:
    london = at(twin, "london", SharedStoreBroker)
    with twin.still():
        london.store.lease(1000, london.now_ms())

    twin.kill("london")

    assert row(twin)[0] == "london"
    assert isinstance(knocks(pair, "paris"), Closed)
    until(lambda: served(pair, "paris"))
    assert row(twin)[0] == "paris"
