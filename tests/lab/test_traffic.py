"""Producers and consumers against small brokers in this process."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.frames import Frame
from dr_ctl_lab.lab import traffic
from dr_ctl_lab.lab.clients.dialling import Dialler
from dr_ctl_lab.lab.clients.stomp import StompClient
from dr_ctl_lab.lab.ledger import Ledger
from dr_ctl_lab.lab.traffic import Load, Target
from tests.broker.driving import until
from tests.stomp_io.doors import CONNECTED, closed_port, door, encode

ME = Login("app", "s3cret")


class Queue:
    """A broker with one queue for all connections: what is sent is handed to the next subscriber who says anything."""

    def __init__(self, *, confirm: Callable[[Frame], bool] = lambda _: True) -> None:
        self._confirm = confirm
        self._lock = threading.Lock()
        self.waiting: list[Frame] = []
        self.sent: list[Frame] = []
        self.hang_up = False

    def answer(self, frame: Frame) -> list[bytes] | None:
        with self._lock:
            if self.hang_up:
                return None
            receipt = frame.headers.get("receipt")
            replies = [encode("RECEIPT", {"receipt-id": receipt})] if receipt and self._confirm(frame) else []
            match frame.cmd:
                case "CONNECT":
                    return [CONNECTED]
                case "SEND":
                    self.sent.append(frame)
                    self.waiting.append(frame)
                case "SUBSCRIBE" | "ACK":
                    replies += [self._message(one) for one in self.waiting]
                    self.waiting = []
            return replies

    @staticmethod
    def _message(sent: Frame) -> bytes:
        ident = sent.headers["order_id"]
        return encode("MESSAGE", {"subscription": "0", "ack": ident, "order_id": ident, "message-id": ident}, "x")


def target(*addresses: Address) -> Target:
    return Target(tuple(zip(("london", "paris"), addresses, strict=False)), ME)


def test_every_send_is_durable_and_who_has_nothing_to_send_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, receive, queue = [], StompClient.receive, Queue()
    monkeypatch.setattr(StompClient, "receive", lambda *words: turns.append(words) or receive(*words))
    with door(queue.answer) as address, Load(target(address), ["orders.in"], 500, consumers=0) as load:
        load.wait_for(20)
        load.pause_producing()
        before = len(turns)
        time.sleep(0.5)
        assert len(turns) - before < 100
        load.resume_producing()
        load.wait_for(load.counts().sent + 20)

    assert len({frame.headers["order_id"] for frame in queue.sent}) == len(queue.sent)
    for frame in queue.sent:
        assert {"persistent": "true", "destination-type": "ANYCAST", "destination": "orders.in"}.items() <= (
            frame.headers.items()
        )


def test_what_is_sent_first_is_consumed_and_judged_clean(tmp_path: Path) -> None:
    queue = Queue()
    path = tmp_path / "ledger.jsonl"
    with door(queue.answer) as address:
        with Load(target(address), ["q"], 500, producers=1, consumers=0, ledger_path=path) as sending:
            sending.wait_for(10)
            sending.pause_producing()
            until(lambda: sending.counts().sent == sending.counts().attempted)
        first = Ledger.read(path).verdict()
        with Load(target(address), ["q"], 0, producers=0, consumers=1, ledger_path=tmp_path / "2") as taking:
            taking.wait_until(lambda counts: counts.consumed == first.counts.sent)
            taking.stop(drain_s=0.1)

    assert len(first.lost) == first.counts.sent
    assert Ledger.read(path, tmp_path / "2").verdict().clean


def test_a_send_without_a_receipt_is_in_doubt_and_not_sent_again() -> None:
    queue = Queue(confirm=lambda frame: not frame.headers.get("order_id", "").endswith("-3"))
    with door(queue.answer) as address, Load(target(address), ["q"], 200, producers=1, consumers=0) as load:
        load.wait_for(10)
        queue.hang_up = True
        load.wait_until(lambda counts: counts.send_in_doubt > 0)
        queue.hang_up = False
        load.wait_for(load.counts().sent + 10)
        load.close()
        verdict = load.ledger.verdict()

    assert [frame.headers["order_id"][-2:] for frame in queue.sent].count("-3") == 1
    assert verdict.in_doubt == verdict.counts.send_in_doubt >= 1
    assert verdict.send_gap.seconds > 0


def test_clients_follow_the_service_to_the_other_site() -> None:
    london, paris = Queue(), Queue()
    with door(paris.answer) as there:
        with door(london.answer) as here, Load(target(here, there), ["q"], 200, consumers=0) as load:
            load.wait_for(10)
            assert paris.sent == []
            london.hang_up = True
            until(lambda: paris.sent)
            load.close()

        assert london.sent


def dialled(dialler: Dialler) -> str:
    """The site that is found, at once."""
    began = time.monotonic()
    found = dialler.dial(threading.Event())
    assert found is not None
    found[1].close()
    assert time.monotonic() - began < 1.0
    return found[0]


def test_who_serves_is_found_whatever_others_do() -> None:
    asked: list[Frame] = []

    def late(frame: Frame) -> list[bytes]:
        asked.append(frame)
        return [CONNECTED] if len(asked) > 1 else []

    with door(lambda _: [CONNECTED]) as one, door(lambda _: [CONNECTED]) as other, door(lambda _: []) as silent:
        both = Dialler(target(one, other))
        assert [dialled(both) for _ in range(5)] == ["london"] * 5, "who served last is preferred"
        assert dialled(Dialler(target(silent, other))) == "paris"
    with door(late) as address:
        assert dialled(Dialler(target(address))) == "london", "a knock that is never answered keeps nobody out"


def test_a_door_that_opens_is_found_within_milliseconds() -> None:
    opened: list[float] = []
    found: list[float] = []
    address = closed_port()
    stop = threading.Event()

    def look() -> None:
        dialled = Dialler(target(address, closed_port())).dial(stop)
        found.append(time.monotonic())
        if dialled is not None:
            dialled[1].close()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with door(lambda _: [CONNECTED], port=address.port):
            opened.append(time.monotonic())
            looking.join(timeout=5)
    finally:
        stop.set()

    assert found[0] - opened[0] < 0.1  # some ten milliseconds, and a busy machine's share


def test_nobody_lets_us_in_and_stop_is_heard_at_once() -> None:
    load = Load(target(closed_port(), closed_port()), ["q"], 100).start()
    with pytest.raises(TimeoutError, match=r"5 receipts.*sent=0"):
        load.wait_for(5, within_s=0.1)
    began = time.monotonic()

    verdict = load.stop(drain_s=1)

    assert time.monotonic() - began < 3
    assert verdict.counts.attempted == 0


def test_a_drain_waits_for_as_long_as_messages_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine they come slowly, and what still lies in a queue is not lost."""
    load = Load(target(closed_port()), ["q"], 100)
    counts = iter([replace(load.counts(), awaited=left) for left in range(8, -1, -1)])
    monkeypatch.setattr(traffic, "LOOK_S", 0.05)
    monkeypatch.setattr(load, "counts", lambda: next(counts))
    monkeypatch.setattr(load, "_consumers", [threading.Thread()])

    assert load._drain(0.1)
