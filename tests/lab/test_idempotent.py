"""Consumers that skip what their site knows, the processor, and clients whose queue is closed by itself."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.frames import Frame
from dr_ctl_lab.lab.ids import QUEUE_HEADER, Ids, IdStore, Where
from dr_ctl_lab.lab.processor import process
from dr_ctl_lab.lab.traffic import Load, Target
from tests.broker.driving import until
from tests.stomp_io.doors import CONNECTED, door, encode

ME = Login("app", "s3cret")
TOLD = "told"


class Site:
    """A site whose queues are closed by themselves, and what was said to it."""

    def __init__(self, *closed: str) -> None:
        self.closed = set(closed)
        self.waiting: list[str] = []
        self.sent: list[tuple[str, str]] = []
        self.told: list[tuple[str | None, str]] = []
        self.acked: list[str] = []
        self.known_when_acked: list[bool] = []
        self.knows: Callable[[str], bool] = lambda _: False

    def answer(self, frame: Frame) -> list[bytes] | None:
        receipt = frame.headers.get("receipt")
        confirmed = [encode("RECEIPT", {"receipt-id": receipt})] if receipt else []
        where = frame.headers.get("destination", "")
        if where in self.closed:
            return [encode("ERROR", {"message": f"AMQ229032: no permission on {where}"})]
        match frame.cmd:
            case "CONNECT":
                return [CONNECTED]
            case "SEND" if where == TOLD:
                self.told.append((frame.headers.get(QUEUE_HEADER), _body(frame)))
            case "SEND":
                self.sent.append((where, frame.headers["order_id"]))
            case "SUBSCRIBE":
                return confirmed + [_message(ident, frame.headers["id"]) for ident in self.waiting]
            case "ACK":
                self.acked.append(frame.headers["id"])
                self.known_when_acked.append(self.knows(frame.headers["id"]))
        return confirmed


def _body(frame: Frame) -> str:
    return frame.body.decode() if isinstance(frame.body, bytes) else str(frame.body)


def _message(ident: str, subscription: str) -> bytes:
    return encode("MESSAGE", {"subscription": subscription, "ack": ident, "order_id": ident, "message-id": ident}, "x")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, IdStore]]:
    made = {site: IdStore(tmp_path / f"{site}.sqlite") for site in ("london", "paris")}
    yield made
    for store in made.values():
        store.close()


def target(folder: Path, **addresses: Address) -> Target:
    ids = Ids({site: folder / f"{site}.sqlite" for site in addresses}, TOLD)
    return Target(tuple(addresses.items()), ME, ids=ids)


def test_an_id_is_written_once_and_keeps_who_processed_it(stores: dict[str, IdStore], tmp_path: Path) -> None:
    store, beside = stores["london"], IdStore(tmp_path / "london.sqlite")
    store.add([("q", "1")], Where.HERE)
    beside.add([("q", "1"), ("other", "1")], Where.PEER)
    beside.close()

    assert [store.known(*each) for each in (("q", "1"), ("other", "1"), ("q", "2"))] == [Where.HERE, Where.PEER, None]
    assert store.every() == {("q", "1"), ("other", "1")}


def test_what_either_site_processed_is_acknowledged_without_work_and_an_id_is_told_before_its_acknowledgement(
    tmp_path: Path, stores: dict[str, IdStore]
) -> None:
    """Only one's own is told again."""
    stores["london"].add([("q", "mine")], Where.HERE)
    stores["london"].add([("q", "theirs")], Where.PEER)
    site = Site()
    site.waiting = ["mine", "theirs", "1", "2"]

    def knows(ident: str) -> bool:
        store = IdStore(tmp_path / "london.sqlite")
        known = store.known("q", ident) is not None
        store.close()
        return known and (("q", ident) in site.told or ident == "theirs")

    site.knows = knows
    with (
        door(site.answer) as address,
        Load(target(tmp_path, london=address), ["q"], 0, producers=0, consumers=1) as load,
    ):
        load.wait_until(lambda counts: counts.consumed == 2)
        received = load.counts().received

    assert received == 2
    assert site.acked == ["mine", "theirs", "1", "2"]
    assert site.known_when_acked == [True] * 4
    assert site.told == [("q", "mine"), ("q", "1"), ("q", "2")]


def test_one_message_is_in_hand_at_a_time(
    tmp_path: Path, stores: dict[str, IdStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that confirms no acknowledgement: nothing is worked on that it might then give to the peer's clients."""
    monkeypatch.setattr("dr_ctl_lab.lab.traffic.FINISH_S", 0.1)
    site = Site()
    site.waiting = ["1", "2", "3"]

    def silent(frame: Frame) -> list[bytes] | None:
        answered = site.answer(frame)
        return [] if frame.cmd == "ACK" else answered

    with door(silent) as address, Load(target(tmp_path, london=address), ["q"], 0, producers=0, consumers=1) as load:
        load.wait_until(lambda counts: counts.received == 1)
        until(lambda: site.acked)
        load.close()
        counts = load.counts()

    assert (counts.received, counts.ack_in_doubt) == (1, 1)


def test_clients_go_where_their_queue_is_open_and_what_was_refused_is_not_in_doubt(
    tmp_path: Path, stores: dict[str, IdStore]
) -> None:
    london, paris = Site("a"), Site("b")
    with (
        door(london.answer) as here,
        door(paris.answer) as there,
        Load(target(tmp_path, london=here, paris=there), ["a", "b"], 200) as load,
    ):
        load.wait_until(lambda _: len(london.sent) > 5 and len(paris.sent) > 5, what="sends at both")
        verdict = load.stop(drain_s=0)

    assert {queue for queue, _ in london.sent} == {"b"}
    assert {queue for queue, _ in paris.sent} == {"a"}
    assert verdict.in_doubt == 0
    assert verdict.counts.attempted == verdict.counts.sent == len({*london.sent, *paris.sent})


def test_the_processor_writes_down_what_it_is_told_and_comes_back_with_its_broker(
    tmp_path: Path, stores: dict[str, IdStore]
) -> None:
    acked: list[str] = []

    def answer(frame: Frame) -> list[bytes] | None:
        match frame.cmd:
            case "CONNECT":
                return [CONNECTED]
            case "SUBSCRIBE":
                told = "second" if acked else "first"
                headers = {"subscription": "ids", "ack": told, "message-id": told, QUEUE_HEADER: "q"}
                return [encode("MESSAGE", headers, told)]
            case "ACK":
                acked.append(frame.headers["id"])
                return None if acked == ["first"] else []
        return []

    stop = threading.Event()

    def run() -> None:
        mine = IdStore(tmp_path / "london.sqlite")
        process(address, ME, TOLD, mine, stop)
        mine.close()

    with door(answer) as address:
        running = threading.Thread(target=run)
        running.start()
        until(lambda: acked == ["first", "second"])
        stop.set()
        running.join(timeout=5)

    assert not running.is_alive()
    assert stores["london"].known("q", "first") is Where.PEER
    assert stores["london"].every() == {("q", "first"), ("q", "second")}
