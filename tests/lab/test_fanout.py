"""Producers that write to two brokers at once, against small brokers in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dr_ctl.stomp_io.address import Login
from dr_ctl.stomp_io.dialect import CLASSIC
from dr_ctl_lab.lab.fanout import FanOut
from dr_ctl_lab.lab.traffic import Load, Target
from tests.broker.driving import until
from tests.lab.test_traffic import Queue
from tests.stomp_io.doors import door


@contextmanager
def fanned_out(least: Path, london: Queue, paris: Queue) -> Iterator[Load]:
    """A load on two brokers, both of which have to confirm."""
    least.write_text("2\n")
    with door(london.answer) as first, door(paris.answer) as second:
        sites = (("london", first), ("paris", second))
        target = Target(sites, Login("app", "s3cret"), dialect=CLASSIC, fan_out=FanOut(sites, least))
        with Load(target, ["q"], 200, producers=1, consumers=0) as load:
            yield load


def ids(queue: Queue) -> list[str]:
    return [frame.headers["order_id"] for frame in queue.sent]


def test_what_one_broker_does_not_confirm_is_not_sent_until_one_is_enough(tmp_path: Path) -> None:
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


def test_with_one_broker_gone_nothing_is_sent_and_what_was_under_way_is_in_doubt(tmp_path: Path) -> None:
    london, paris = Queue(), Queue(confirm=lambda frame: not frame.headers.get("order_id", "").endswith("-12"))
    least = tmp_path / "least"
    with fanned_out(least, london, paris) as load:
        load.wait_until(lambda counts: counts.attempted > 12)
        assert {frame.headers["destination"] for frame in london.sent} == {"/queue/q"}
        assert not any("destination-type" in frame.headers for frame in london.sent)
        paris.hang_up = True
        load.wait_until(lambda counts: counts.attempted == counts.sent + counts.send_in_doubt)
        paris.hang_up = False
        load.wait_for(load.counts().sent + 10)
        load.close()

    assert load.ledger.verdict().in_doubt >= 1
    assert [ident[-3:] for ident in ids(london)].count("-12") == 1  # nothing is sent again
