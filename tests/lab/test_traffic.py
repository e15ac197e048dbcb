"""Producers and consumers against small brokers in this process: what the ledger would judge wrongly otherwise."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from proton.reactor import Container

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.client import Frame
from dr_ctl_lab.lab import traffic
from dr_ctl_lab.lab.clients.amqp import AmqpClient
from dr_ctl_lab.lab.clients.client import Proto
from dr_ctl_lab.lab.clients.dialling import Dialler
from dr_ctl_lab.lab.clients.stomp import StompClient
from dr_ctl_lab.lab.dialect import CLASSIC
from dr_ctl_lab.lab.fanout import FanOut
from dr_ctl_lab.lab.ids import QUEUE_HEADER, Ids, IdStore, ProcessedAt
from dr_ctl_lab.lab.traffic import Load, Target
from tests.broker.driving import until
from tests.stomp_io.listeners import CONNECTED, closed_port, encode, listener

ME = Login("app", "s3cret")
TOLD = "told"


class Queue:
    """A broker with one queue for all connections: what is sent is handed to the next subscriber who says anything.
    Queues may be `closed` by themselves; what clients say they processed is `told`."""

    def __init__(self, *closed: str, confirm: Callable[[Frame], bool] = lambda _: True) -> None:
        self._closed, self._confirm = closed, confirm
        self._lock = threading.Lock()
        self.waiting: list[str] = []
        self.sent: list[Frame] = []
        self.told: list[tuple[str | None, object]] = []
        self.acked: list[str] = []
        self.acknowledged: Callable[[str], object] = lambda ident: None
        self.hang_up = False

    def answer(self, frame: Frame) -> list[bytes] | None:
        with self._lock:
            if self.hang_up:
                return None
            where, receipt = frame.headers.get("destination", ""), frame.headers.get("receipt")
            if where in self._closed:
                return [encode("ERROR", {"message": f"AMQ229032: no permission on {where}"})]
            replies = [encode("RECEIPT", {"receipt-id": receipt})] if receipt and self._confirm(frame) else []
            match frame.cmd:
                case "CONNECT":
                    return [CONNECTED]
                case "SEND" if where == TOLD:
                    body = frame.body.decode() if isinstance(frame.body, bytes) else frame.body
                    self.told.append((frame.headers.get(QUEUE_HEADER), body))
                case "SEND":
                    self.sent.append(frame)
                    self.waiting.append(frame.headers["order_id"])
                case "SUBSCRIBE" | "ACK":
                    if frame.cmd == "ACK":
                        self.acked.append(frame.headers["id"])
                        self.acknowledged(frame.headers["id"])
                    replies += [self._message(ident) for ident in self.waiting]
                    self.waiting = []
            return replies

    @staticmethod
    def _message(ident: str) -> bytes:
        return encode("MESSAGE", {"subscription": "0", "ack": ident, "order_id": ident, "message-id": ident}, "x")


def target(*addresses: Address) -> Target:
    return Target(tuple(zip(("london", "paris"), addresses, strict=False)), ME)


def test_every_send_is_durable_and_who_has_nothing_to_send_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, receive, queue = [], StompClient.receive, Queue()
    monkeypatch.setattr(StompClient, "receive", lambda *words: turns.append(words) or receive(*words))
    with listener(queue.answer) as address, Load(target(address), ["orders.in"], 500, consumers=0) as load:
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


def test_a_send_without_a_receipt_is_in_doubt_and_not_sent_again() -> None:
    queue = Queue(confirm=lambda frame: not frame.headers.get("order_id", "").endswith("-3"))
    with listener(queue.answer) as address, Load(target(address), ["q"], 200, producers=1, consumers=0) as load:
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


def dialled(dialler: Dialler) -> str:
    began = time.monotonic()
    connection = dialler.dial(threading.Event())
    assert connection is not None
    connection[1].close()
    assert time.monotonic() - began < 1.0
    return connection[0]


def test_who_serves_is_found_whatever_others_do() -> None:
    asked: list[Frame] = []

    def late(frame: Frame) -> list[bytes]:
        asked.append(frame)
        return [CONNECTED] if len(asked) > 1 else []

    with (
        listener(lambda _: [CONNECTED]) as one,
        listener(lambda _: [CONNECTED]) as other,
        listener(lambda _: []) as silent,
    ):
        both = Dialler(target(one, other))
        assert [dialled(both) for _ in range(5)] == ["london"] * 5, "who served last is preferred"
        assert dialled(Dialler(target(silent, other))) == "paris"
    with listener(late) as address:
        assert dialled(Dialler(target(address))) == "london", "a knock that is never answered keeps nobody out"


def test_a_drain_waits_for_as_long_as_messages_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine they come slowly, and what still lies in a queue is not lost."""
    load = Load(target(closed_port()), ["q"], 100)
    counts = iter([replace(load.counts(), awaited=left) for left in range(8, -1, -1)])
    monkeypatch.setattr(traffic, "POLL_S", 0.05)
    monkeypatch.setattr(load, "counts", lambda: next(counts))
    monkeypatch.setattr(load, "_consumers", [threading.Thread()])

    assert load._drain(0.1)


@contextmanager
def fanned_out(least: Path, london: Queue, paris: Queue) -> Iterator[Load]:
    least.write_text("2\n")
    with listener(london.answer) as first, listener(paris.answer) as second:
        sites = (("london", first), ("paris", second))
        with Load(
            Target(sites, ME, dialect=CLASSIC, fan_out=FanOut(sites, least)), ["q"], 200, producers=1, consumers=0
        ) as load:
            yield load


def test_what_one_of_two_brokers_does_not_confirm_is_not_sent_until_one_is_enough(tmp_path: Path) -> None:
    london, paris = Queue(), Queue(confirm=lambda frame: frame.cmd != "SEND")
    least = tmp_path / "least"
    with fanned_out(least, london, paris) as load:
        load.wait_until(lambda counts: counts.attempted > 10)
        unconfirmed = load.counts().sent
        least.write_text("")  # being written: as before
        until(lambda: len(london.sent) > 15)
        still = load.counts().sent
        least.write_text("1\n")
        load.wait_for(10)

    assert (unconfirmed, still) == (0, 0)


def knowing(folder: Path, *addresses: Address) -> Target:
    plain = target(*addresses)
    return replace(plain, ids=Ids({site: folder / f"{site}.sqlite" for site, _ in plain.sites}, TOLD))


def test_what_a_site_processed_is_only_acknowledged_and_an_id_is_told_before_that(tmp_path: Path) -> None:
    store = IdStore(tmp_path / "london.sqlite")
    store.add([("q", "mine")], ProcessedAt.HERE)
    store.add([("q", "theirs")], ProcessedAt.PEER)
    store.add([("q", "mine"), ("other", "1")], ProcessedAt.PEER)  # who processed it first stays
    site, known = Queue(), list[bool]()
    site.waiting = ["mine", "theirs", "1", "2"]

    def acknowledged(ident: str) -> None:
        beside = IdStore(tmp_path / "london.sqlite")
        known.append(beside.known("q", ident) is not None and (("q", ident) in site.told or ident == "theirs"))
        beside.close()

    site.acknowledged = acknowledged
    with listener(site.answer) as address, Load(knowing(tmp_path, address), ["q"], 0, producers=0, consumers=1) as load:
        load.wait_until(lambda counts: counts.consumed == 2)
        received = load.counts().received

    assert (received, site.acked, known) == (2, ["mine", "theirs", "1", "2"], [True] * 4)
    assert site.told == [("q", "mine"), ("q", "1"), ("q", "2")]
    assert (store.known("q", "mine"), store.known("q", "3")) == (ProcessedAt.HERE, None)
    store.close()


def test_clients_go_where_their_queue_is_open_and_what_was_refused_is_not_in_doubt(tmp_path: Path) -> None:
    london, paris = Queue("a"), Queue("b")
    with (
        listener(london.answer) as local,
        listener(paris.answer) as remote,
        Load(knowing(tmp_path, local, remote), ["a", "b"], 200) as load,
    ):
        load.wait_until(lambda _: len(london.sent) > 5 and len(paris.sent) > 5, goal="sends at both")
        verdict = load.stop(drain_s=0)

    assert [{message.headers["destination"] for message in site.sent} for site in (london, paris)] == [{"b"}, {"a"}]
    assert verdict.in_doubt == 0
    assert verdict.counts.attempted == verdict.counts.sent == len(london.sent) + len(paris.sent)


SHARED = "plant.readings::workers.plant.readings"
QUEUES = ("orders.in", "odd name", SHARED)
ALL = (Proto.STOMP, Proto.AMQP, Proto.CORE, Proto.MQTT)


def spoken(
    number: int, *protocols: Proto, sends: bool = True, queues: tuple[str, ...] = QUEUES
) -> list[tuple[Proto, tuple[str, ...]]]:
    target = Target((("london", closed_port()),), ME, forwards=frozenset({"orders.in"}))
    load = Load(target, queues, 1, protocols=protocols)
    reachable = target.sendable if sends else target.consumable
    return list(itertools.islice(load._protocols_in_turn(number, queues, reachable), 5))


def test_each_client_begins_with_another_protocol_and_goes_on_with_the_next() -> None:
    assert [spoken(number, *ALL)[0][0] for number in range(4)] == [*ALL]
    assert [value for value, _ in spoken(1, *ALL)] == [Proto.AMQP, Proto.CORE, Proto.STOMP, Proto.AMQP, Proto.CORE]


def test_who_speaks_mqtt_stays_with_it_and_reaches_what_takes_it() -> None:
    assert spoken(3, *ALL) == [(Proto.MQTT, ("orders.in", SHARED))] * 5
    assert spoken(3, *ALL, sends=False) == [(Proto.MQTT, (SHARED,))] * 5
    # Where only MQTT is asked for, what it does not reach is served all the same.
    assert spoken(0, Proto.MQTT, sends=False, queues=QUEUES[:1])[0] == (Proto.STOMP, ("orders.in",))


@pytest.mark.parametrize("before", [0, 1])
def test_a_client_of_amqp_waits_whichever_call_of_its_library_waits(before: int) -> None:
    client = AmqpClient.__new__(AmqpClient)
    client._error, client._inbox, client._container = None, deque(), Container()
    client._container.start()
    listener = client._container.listen("127.0.0.1:0")
    for _ in range(before):
        client._container.process()
    began = time.monotonic()
    for _ in range(5):
        client._process(0.05)
    assert time.monotonic() - began >= 0.25
    listener.close()
    while client._container.process():
        pass
