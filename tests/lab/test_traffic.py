"""Producers and consumers against small brokers in this process."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.frames import Frame
from dr_ctl_lab.lab import traffic
from dr_ctl_lab.lab.clients.dialling import Dialler
from dr_ctl_lab.lab.clients.stomp import StompClient
from dr_ctl_lab.lab.ledger import Ledger
from dr_ctl_lab.lab.traffic import Load, Target
from tests.lab.holding import HoldingConsumer
from tests.lab.waiting import eventually
from tests.stomp_io.doors import CONNECTED, closed_port, door
from tests.stomp_io.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ME = Login("app", "s3cret")


class Queue:
    """A broker with one queue for all connections: what is sent is handed to the next subscriber who says anything."""

    def __init__(self, *, confirm: Callable[[Frame], bool] = lambda _: True) -> None:
        self._confirm = confirm
        self._lock = threading.Lock()
        self.waiting: list[Frame] = []
        self.sent: list[Frame] = []
        self.acked: list[str] = []
        self.client_ids: list[str | None] = []
        self.hang_up = False

    def answer(self, frame: Frame) -> list[bytes] | None:
        with self._lock:
            if self.hang_up:
                return None
            receipt = frame.headers.get("receipt")
            replies = [encode("RECEIPT", {"receipt-id": receipt})] if receipt and self._confirm(frame) else []
            match frame.cmd:
                case "CONNECT":
                    self.client_ids.append(frame.headers.get("client-id"))
                    return [CONNECTED]
                case "SEND":
                    self.sent.append(frame)
                    self.waiting.append(frame)
                case "SUBSCRIBE" | "ACK":
                    if frame.cmd == "ACK":
                        self.acked.append(frame.headers["id"])
                    replies += [self._message(one) for one in self.waiting]
                    self.waiting = []
            return replies

    @staticmethod
    def _message(sent: Frame) -> bytes:
        ident = sent.headers["order_id"]
        return encode("MESSAGE", {"subscription": "0", "ack": ident, "order_id": ident, "message-id": ident}, "x")


def target(*addresses: Address) -> Target:
    return Target(tuple(zip(("london", "paris"), addresses, strict=False)), ME)


def test_every_send_is_durable_anycast_and_has_its_own_id() -> None:
    queue = Queue()
    with door(queue.answer) as address, Load(target(address), ["orders.in"], 500, consumers=0) as load:
        load.wait_for(20)

    assert len({frame.headers["order_id"] for frame in queue.sent}) == len(queue.sent)
    for frame in queue.sent:
        assert {"persistent": "true", "destination-type": "ANYCAST", "destination": "orders.in"}.items() <= (
            frame.headers.items()
        )


def test_who_has_nothing_to_send_waits_for_the_broker_and_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, receive = [], StompClient.receive
    monkeypatch.setattr(StompClient, "receive", lambda *words: turns.append(words) or receive(*words))
    with door(Queue().answer) as address, Load(target(address), ["orders.in"], 500, consumers=0) as load:
        load.wait_for(20)
        load.pause_producing()
        before = len(turns)
        time.sleep(0.5)
        assert len(turns) - before < 100
        load.resume_producing()
        load.wait_for(load.counts().sent + 20)


def test_what_is_sent_first_is_consumed_and_judged_clean(tmp_path: Path) -> None:
    queue = Queue()
    path = tmp_path / "ledger.jsonl"
    with door(queue.answer) as address:
        with Load(target(address), ["q"], 500, producers=1, consumers=0, ledger_path=path) as sending:
            sending.wait_for(10)
            sending.pause_producing()
            eventually(lambda: sending.counts().sent == sending.counts().attempted)
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
            eventually(lambda: paris.sent)
            load.close()

        assert london.sent


def test_the_site_that_served_last_is_preferred() -> None:
    with door(lambda _: [CONNECTED]) as here, door(lambda _: [CONNECTED]) as there:
        dialler = Dialler(target(here, there))
        for _ in range(5):
            found = dialler.dial(threading.Event())
            assert found is not None
            found[1].close()
            assert found[0] == "london"


def test_a_silent_site_does_not_keep_clients_from_the_other() -> None:
    with door(lambda _: []) as silent, door(lambda _: [CONNECTED]) as there:
        began = time.monotonic()
        found = Dialler(target(silent, there)).dial(threading.Event())

        assert found is not None
        found[1].close()
        assert found[0] == "paris"
        assert time.monotonic() - began < 1.0


def test_a_connection_that_never_gets_an_answer_does_not_keep_clients_out() -> None:
    asked: list[Frame] = []

    def answer(frame: Frame) -> list[bytes]:
        asked.append(frame)
        return [CONNECTED] if len(asked) > 1 else []

    with door(answer) as address:
        began = time.monotonic()
        found = Dialler(target(address)).dial(threading.Event())

        assert found is not None
        found[1].close()
        assert time.monotonic() - began < 1.0


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
    with door(lambda _: [CONNECTED], port=address.port):
        opened.append(time.monotonic())
        looking.join(timeout=5)
    stop.set()

    assert found[0] - opened[0] < 0.1  # some ten milliseconds, and a busy machine's share


def test_nobody_lets_us_in_and_stop_is_heard_at_once() -> None:
    load = Load(target(closed_port(), closed_port()), ["q"], 100).start()
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


def test_too_few_receipts_are_a_timeout_with_the_counts() -> None:
    with Load(target(closed_port()), ["q"], 100) as load, pytest.raises(TimeoutError, match=r"5 receipts.*sent=0"):
        load.wait_for(5, within_s=0.1)


def test_a_holding_consumer_keeps_what_it_got_until_it_is_told() -> None:
    queue = Queue()
    with door(queue.answer) as address:
        with Load(target(address), ["q"], 500, producers=1, consumers=0) as load:
            load.wait_for(3)
        with HoldingConsumer(target(address), "q", client_id="slow-batch") as holder:
            held = holder.wait_for(3)
            assert queue.acked == []

            holder.release()

            eventually(lambda: set(queue.acked) >= set(held))

    assert queue.client_ids[-1] == "slow-batch"


def test_a_holding_consumer_that_is_let_in_nowhere_says_so() -> None:
    with pytest.raises(TimeoutError, match="slow-batch was let in nowhere"):
        HoldingConsumer(target(closed_port()), "q", client_id="slow-batch").start(within_s=0.1)
