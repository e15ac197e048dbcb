"""Two Classic brokers that share a store, real or simulated: who has it, how it changes hands, what goes with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import requests
import yaml

from dr_ctl.stomp_io.answers import Closed, Connected
from dr_ctl.stomp_io.client import greet
from dr_ctl.topologies.sharedstore.lock import FileLock
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.twin.kinds import SHARED_STORE
from tests.twin.classic_subject import ORDERS, ClassicSubject
from tests.twin.subject import SITES, until

TAKES_S = 60.0


@pytest.fixture
def topology() -> str:
    return SHARED_STORE


@pytest.fixture(scope="module")
def store_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("store contract") / "lab", topology=SHARED_STORE) as lab:
        yield lab


@pytest.fixture(params=["twin", pytest.param("brokers", marks=[pytest.mark.broker, pytest.mark.deep])])
def pair(request: pytest.FixtureRequest) -> ClassicSubject:
    """London serves, and Paris waits."""
    if request.param == "twin":
        return ClassicSubject(request.getfixturevalue("twin"))
    subject = ClassicSubject(request.getfixturevalue("store_pair"))
    for site in SITES:
        subject.stage.start(site)
    until(lambda: any(answers(subject, site) for site in SITES), within_s=TAKES_S)
    if answers(subject, "paris"):
        stop(subject, "paris")
        until(lambda: answers(subject, "london"), within_s=TAKES_S)
        until(lambda: not runs(subject, "paris"), within_s=TAKES_S)
        subject.stage.start("paris")
    subject.done("london", subject.connector("london", "stomp"), "start()")
    until(lambda: knocks(subject, "london") is Connected)
    for name in subject.depths("london"):
        subject.done("london", subject.queue("london", name), "resume()")
        subject.done("london", subject.queue("london", name), "purge()")
    return subject


def knocks(pair: ClassicSubject, site: str) -> type:
    place = pair.place(site)
    return type(greet(place.stomp, place.app, None, timeout_s=2))


def answers(pair: ClassicSubject, site: str) -> bool:
    try:
        return pair.ask(site, type="read", mbean=pair.server(site), attribute=["Slave"])["status"] == 200
    except requests.ConnectionError:
        return False


def stop(pair: ClassicSubject, site: str) -> None:
    """Whoever asks for that is hardly ever answered."""
    with suppress(requests.ConnectionError):
        print(pair.execute(site, pair.server(site), "stop()"))


def locked(pair: ClassicSubject) -> bool:
    return FileLock(pair.stage.directory / "store" / "lock").read().held


def runs(pair: ClassicSubject, site: str) -> bool:
    """What the command of the settings says of its process."""
    told: Any = yaml.safe_load(pair.stage.settings_path.read_text())
    words = told["sites"][site]["brokers"][0]["process"]["state"]
    code = subprocess.run(words, cwd=pair.stage.directory, timeout=10, check=False).returncode
    assert code in (0, 3)
    return code == 0


def taken(pair: ClassicSubject, site: str) -> None:
    until(lambda: knocks(pair, site) is Connected and answers(pair, site), within_s=TAKES_S)


def filled(pair: ClassicSubject, count: int = 3) -> list[str]:
    """So many messages, and one that is not durable; the ids of all but that."""
    with pair.client("london") as client:
        for number in range(count):
            client.send(ORDERS, n=str(number))
        durable = pair.ids("london")
        client.send(ORDERS, durable=False)
    return durable


def test_who_waits_runs_and_has_no_port_and_no_console(pair: ClassicSubject) -> None:
    assert (locked(pair), [runs(pair, site) for site in SITES]) == (True, [True, True])
    assert (knocks(pair, "london"), knocks(pair, "paris")) == (Connected, Closed)
    assert (answers(pair, "london"), answers(pair, "paris")) == (True, False)
    assert pair.read("london", pair.server("london"), "Slave") == {"Slave": False}


def test_closed_connectors_keep_the_lock(pair: ClassicSubject) -> None:
    for _ in range(2):
        pair.done("london", pair.connector("london", "stomp"), "stop()")

    assert (knocks(pair, "london"), knocks(pair, "paris")) == (Closed, Closed)
    assert (locked(pair), answers(pair, "london"), answers(pair, "paris")) == (True, True, False)


def test_what_is_stopped_hands_over_what_is_durable_and_no_pause(pair: ClassicSubject) -> None:
    durable = filled(pair)
    pair.done("london", pair.queue("london", ORDERS), "pause()")
    pair.done("london", pair.connector("london", "stomp"), "stop()")

    stop(pair, "london")

    taken(pair, "paris")
    told = pair.read("paris", pair.queue("paris", ORDERS), "Paused", "QueueSize", "EnqueueCount", "DequeueCount")
    assert (locked(pair), answers(pair, "london")) == (True, False)
    assert pair.ids("paris") == durable
    assert told == {"Paused": False, "QueueSize": 3, "EnqueueCount": 0, "DequeueCount": 0}
    until(lambda: not runs(pair, "london"), within_s=TAKES_S)


def test_what_is_killed_leaves_it_to_who_waits_and_waits_itself_when_it_is_back(pair: ClassicSubject) -> None:
    durable = filled(pair)

    pair.stage.kill("london")

    assert not runs(pair, "london")
    taken(pair, "paris")
    pair.stage.start("london")
    assert runs(pair, "london")
    assert (pair.ids("paris"), knocks(pair, "london"), answers(pair, "london")) == (durable, Closed, False)
    with pair.client("paris") as client:
        client.subscribe(ORDERS)
        client.ack(client.message())
        until(lambda: pair.depth("paris", ORDERS) == 2)


def test_a_store_that_nobody_has_is_locked_by_nobody(pair: ClassicSubject) -> None:
    durable = filled(pair)
    pair.stage.kill("paris")
    pair.stage.kill("london")
    assert not locked(pair)

    pair.stage.start("paris")

    taken(pair, "paris")
    assert (locked(pair), pair.ids("paris")) == (True, durable)
