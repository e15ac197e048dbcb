"""A return that ends half way, under a consumer at the serving site: what was done before is not delivered again, and
the next return succeeds."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.system import in_background, system
from dr_ctl.topologies.mirror import procedure
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.mirror import way
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.mirror.outflow import Event
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.simulated import interrupt
from tests.twin.matrix import ACCEPTED, Died, done, edited, put, take
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
        self._working = in_background(self._work, "consumer")

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
    """London is back, and its link stops after so many events; `stopped` is called once it does. The commands that
    follow are typed beside a consumer at Paris."""

    def __init__(
        self, twin: PlayedTwin, dr_ctl: Command, consumer: Consumer, patch: pytest.MonkeyPatch, left: int = HALF
    ) -> None:
        self.twin, self.dr_ctl, self.consumer, self.left = twin, dr_ctl, consumer, left
        self.stopped: Callable[[], object] = lambda: None
        apply = MirrorBroker.apply

        def applied(broker: MirrorBroker, event: Event) -> None:
            apply(broker, event)
            if broker.site == "paris" and event.kind == "message":
                self.left -= 1
                if self.left == 0:
                    twin.cut("london", "hang")
                    self.stopped()

        patch.setattr(MirrorBroker, "apply", applied)
        patch.setattr(way, "AT_ONCE", 1)
        twin.heal()
        twin.start("london")
        until(lambda: twin.host("paris").broker.attached)

    def returns(self, *words: str) -> Ended:
        return self.dr_ctl("reinstate", "london", "--yes", *words)

    def dies(self) -> None:
        """The process ends once half of it is in."""

        def die(*_: Any, **__: Any) -> None:
            until(lambda: self.left <= 0)
            raise Died

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(procedure, "Wait", die)
            with pytest.raises(Died):
                self.returns()

    def next_one_succeeds(self, *words: str) -> None:
        """And brings nothing that London had done."""
        self.twin.heal()
        done(self.returns(*words))
        until(lambda: len(self.consumer.got) == NEVER)
        assert not {f"message {number}" for number in range(DONE)} & {*self.consumer.got}


@pytest.fixture
def consumer(twin: PlayedTwin, dr_ctl: Command) -> Iterator[Consumer]:
    """London was lost with messages that it had done and some that it had not; Paris serves."""
    with edited(twin) as told:
        told.setdefault("drain", {})["stall"] = "1500ms"
    twin.cut("london")
    until(lambda: not twin.host("london").broker.attached)
    put(twin, "london", "orders.in", DONE + NEVER)
    for _ in range(DONE):
        take(twin, "london", "orders.in")
    twin.kill("london")
    until(lambda: not twin.host("paris").broker.attached)
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    client = Consumer(twin)
    yield client
    client.end()


@pytest.fixture
def half(twin: PlayedTwin, dr_ctl: Command, consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> Half:
    return Half(twin, dr_ctl, consumer, monkeypatch)


@pytest.mark.parametrize(("ends", "code"), [("stalls", 24), ("interrupted", 130), ("aborted", 0)])
def test_what_came_in_ahead_of_its_acknowledgement_is_taken_out(
    twin: PlayedTwin, half: Half, ends: str, code: int
) -> None:
    if ends == "aborted":
        half.dies()
    if ends == "interrupted":
        half.stopped = lambda: interrupt(signal.SIGINT)

    ended = half.dr_ctl("abort", "--yes") if ends == "aborted" else half.returns()

    assert (ended.code, "DR-RETURN-006" in ended.told) == (code, True), ended.document
    assert ended.document["data"]["left"] == {"taken_out": {NAME: HALF}, "duplicates_at_most": 0}
    assert not any(queue.paused for queue in twin.host("paris").broker.queues.values())
    system().sleep(0.2)  # whoever has it now gets it at once
    assert half.consumer.got == []
    half.next_one_succeeds()
    assert "DR-RECONCILE-003" in half.dr_ctl("status").told


def test_what_cannot_be_named_is_counted(half: Half, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dr_ctl.topologies.mirror.reading.RESIDUE_UP_TO", 1)

    ended = half.returns()

    assert (ended.code, "DR-RETURN-007" in ended.told) == (24, True), ended.document
    assert ended.document["data"]["left"] == {"taken_out": {}, "duplicates_at_most": HALF}
    until(lambda: len(half.consumer.got) == HALF)


def test_pauses_that_a_return_holds_are_not_lifted_while_its_way_is_open(
    half: Half, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    half.dies()
    monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / "another state"))
    broken = ("--break-lock", "--reason", "its process is gone")

    ended = half.dr_ctl("unfence", "paris", "--yes", *broken)

    assert (ended.code, ended.document["findings"][0]["id"]) == (10, "DR-UNFENCE-002"), ended.document
    half.next_one_succeeds(*broken)


def test_a_residue_that_moves_is_not_timed_out(
    twin: PlayedTwin, dr_ctl: Command, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with edited(twin) as told:
        told["drain"] |= {"timeout": "300ms", "stall": "600ms"}
    apply = MirrorBroker.apply

    def slow(broker: MirrorBroker, event: Event) -> None:
        apply(broker, event)
        if broker.site == "paris" and event.kind in ("message", "postAck"):
            broker.changed.wait(0.05)

    monkeypatch.setattr(MirrorBroker, "apply", slow)

    Half(twin, dr_ctl, consumer, monkeypatch, left=-1).next_one_succeeds()


def test_what_nothing_explains_is_taken_out_and_kept(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", "orders.in", 3)
    twin.wait_mirrored()
    twin.kill("london")
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    twin.start("london")
    put(twin, "london", "orders.in", 2)
    [london] = [each for each in twin.brokers(MirrorBroker) if each.site == "london"]
    with twin.still():
        london.outflow.events.clear()  # they will never be shipped

    ended = done(dr_ctl("reinstate", "london", "--yes"))

    assert ("DR-RECONCILE-002" in ended.told, "DR-RECONCILE-003" in dr_ctl("status").told) == (True, True)
    kept = [twin.depth("london", name) for name in ("orders.in", "dr-ctl.quarantine.london.orders.in")]
    assert (kept, twin.depth("paris", "orders.in")) == ([3, 2], 3)
