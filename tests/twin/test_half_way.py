"""A return that ends half way, under a consumer at the serving site: what was done before is not delivered again, and
the next return succeeds."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.core.system import beside, system
from dr_ctl.topologies.mirror.acts import reinstate
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.mirror import way
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.mirror.outflow import Event
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.simulated import interrupt
from tests.twin.matrix import ACCEPTED, Died, done, put
from tests.twin.subject import Client, until

DONE, NEVER = 12, 3
HALF = 9  # messages that are in when nothing more comes
NAME = "dr-ctl.quarantine.paris.orders.in"


class Consumer:
    """A client of Paris that takes what is delivered, and acknowledges it."""

    def __init__(self, stage: PlayedTwin | Lab) -> None:
        self.got: list[str] = []
        self._stop = system().event()
        self._client = Client(stage.site("paris"), {})
        self._client.subscribe("orders.in")
        self._working = beside(self._work, "consumer")

    def _work(self) -> None:
        while not self._stop.is_set():
            for frame in self._client.connection.receive(0.02):
                if frame.cmd == "MESSAGE":
                    self.got.append(frame.body.decode())
                    self._client.connection.stomp.send_frame("ACK", {"id": frame.headers["ack"]}, "")

    def end(self) -> None:
        self._stop.set()
        self._working.result()
        self._client.connection.close(politely=False)


class Half:
    """London is back, and its link stops after so many events; `stopped` is called once it does."""

    def __init__(self, twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch) -> None:
        self.twin, self.left = twin, HALF
        self.stopped: Callable[[], object] = lambda: None
        apply = MirrorBroker.apply

        def applied(broker: MirrorBroker, event: Event) -> None:
            apply(broker, event)
            if broker.site == "paris" and event.kind == "message":
                self.left -= 1
                if self.left == 0:
                    twin.cut("london", "hang")
                    self.stopped()

        monkeypatch.setattr(MirrorBroker, "apply", applied)
        monkeypatch.setattr(way, "AT_ONCE", 1)

    def wait(self) -> None:
        until(lambda: self.left <= 0)

    def heal(self) -> None:
        self.twin.heal()


@pytest.fixture
def consumer(twin: PlayedTwin, dr_ctl: Command) -> Iterator[Consumer]:
    """London was lost with messages that it had done and some that it had not, and is back; Paris serves."""
    _settings(twin, stall="1500ms")
    twin.cut("london")
    until(lambda: not twin.host("london").broker.attached)
    put(twin, "london", "orders.in", DONE + NEVER)
    broker = twin.host("london").broker
    with twin.still():
        queue = broker.queues["orders.in"]
        for message in list(queue.live())[:DONE]:
            broker.remove(queue, message)
    twin.kill("london")
    until(lambda: not twin.host("paris").broker.attached)
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    client = Consumer(twin)
    yield client
    client.end()


def _settings(twin: PlayedTwin, **drain: str) -> None:
    told = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    told["drain"] = {**told.get("drain", {}), **drain}
    twin.settings_path.write_text("# A twin.\n" + json.dumps(told), encoding="utf-8")


def back(twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch) -> Half:
    half = Half(twin, monkeypatch)
    twin.heal()
    twin.start("london")
    until(lambda: twin.host("paris").broker.attached)
    return half


def first(got: list[str]) -> list[str]:
    """Of what was delivered, what London had done."""
    return [body for body in got if body in {f"message {number}" for number in range(DONE)}]


def told_of_it(ended: Ended) -> None:
    assert "DR-RETURN-006" in ended.told, ended.document
    assert ended.document["data"]["left"] == {"taken_out": {NAME: HALF}, "duplicates_at_most": 0}


def next_one_succeeds(half: Half, consumer: Consumer, dr_ctl: Command, *words: str) -> None:
    half.heal()
    ended = dr_ctl("reinstate", "london", "--yes", *words)
    assert ended.code == 0, ended.document
    until(lambda: len(consumer.got) == NEVER)
    assert first(consumer.got) == []


def stalls(half: Half, dr_ctl: Command) -> Ended:
    ended = dr_ctl("reinstate", "london", "--yes")
    assert ended.code == 24, ended.document
    return ended


def is_interrupted(half: Half, dr_ctl: Command) -> Ended:
    half.stopped = lambda: interrupt(signal.SIGINT)
    ended = dr_ctl("reinstate", "london", "--yes")
    assert ended.code == 130, ended.document
    return ended


@contextmanager
def killed(half: Half, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process ends once half of it is in."""

    def dies(*_: Any) -> None:
        half.wait()
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(reinstate, "until_all", dies)
        yield


def is_aborted(half: Half, dr_ctl: Command) -> Ended:
    with killed(half, pytest.MonkeyPatch()), pytest.raises(Died):
        dr_ctl("reinstate", "london", "--yes")
    ended = dr_ctl("abort", "--yes")
    assert ended.code == 0, ended.document
    return ended


@pytest.mark.parametrize("ends", [stalls, is_interrupted, is_aborted])
def test_what_came_in_ahead_of_its_acknowledgement_is_taken_out(
    twin: PlayedTwin,
    dr_ctl: Command,
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    ends: Callable[[Half, Command], Ended],
) -> None:
    half = back(twin, monkeypatch)

    ended = ends(half, dr_ctl)

    told_of_it(ended)
    assert not any(queue.paused for queue in twin.host("paris").broker.queues.values())
    system().sleep(0.2)  # whoever has it now gets it at once
    assert consumer.got == []
    next_one_succeeds(half, consumer, dr_ctl)
    assert "DR-RECONCILE-003" in dr_ctl("status").told


def test_what_cannot_be_named_is_counted(
    twin: PlayedTwin, dr_ctl: Command, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = back(twin, monkeypatch)
    monkeypatch.setattr("dr_ctl.topologies.mirror.origins.RESIDUE_UP_TO", 1)

    ended = stalls(half, dr_ctl)

    assert "DR-RETURN-007" in ended.told
    assert ended.document["data"]["left"] == {"taken_out": {}, "duplicates_at_most": HALF}
    until(lambda: len(consumer.got) == HALF)


def test_pauses_that_a_return_holds_are_not_lifted_while_its_way_is_open(
    twin: PlayedTwin,
    dr_ctl: Command,
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    half = back(twin, monkeypatch)
    with killed(half, pytest.MonkeyPatch()), pytest.raises(Died):
        dr_ctl("reinstate", "london", "--yes")
    monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / "another state"))
    broken = ("--break-lock", "--reason", "its process is gone")

    ended = dr_ctl("unfence", "paris", "--yes", *broken)

    assert (ended.code, ended.document["findings"][0]["id"]) == (10, "DR-UNFENCE-002"), ended.document
    next_one_succeeds(half, consumer, dr_ctl, *broken)


def test_a_residue_that_moves_is_not_timed_out(
    twin: PlayedTwin, dr_ctl: Command, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _settings(twin, timeout="300ms", stall="600ms")
    apply = MirrorBroker.apply

    def slow(broker: MirrorBroker, event: Event) -> None:
        apply(broker, event)
        if broker.site == "paris" and event.kind in ("message", "postAck"):
            broker.changed.wait(0.05)

    monkeypatch.setattr(MirrorBroker, "apply", slow)
    half = back(twin, monkeypatch)
    half.left = -1

    next_one_succeeds(half, consumer, dr_ctl)
