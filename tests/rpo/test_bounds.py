"""What a failover may lose and bring twice at most: never below the truth, and never a figure that nobody read; what
any reading shows at one site and not at the other counts, by queue, whatever the outflow says."""

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from dr_ctl.core.document import document
from dr_ctl.core.model import Severity
from dr_ctl.rpo.bounds import readings
from dr_ctl.rpo.bounds.bounds import latest_end
from dr_ctl.rpo.bounds.pair import READINGS
from dr_ctl.rpo.bounds.result import Bound, Bounds, Loss, LostSite
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.writer import TAIL_EVERY_S, Writer
from dr_ctl.settings.model import HistoryLocation
from tests.clocks import FixedClock
from tests.rpo.fifo import FifoSite, at
from tests.rpo.files import bounds_of, write

ONE, TWO = "orders-1", "orders-2"


def role(name: str, second: float, pair: str = ONE) -> Row:
    return Row(site="london", ts=at(second), pair=pair, kind="site", name=name, took_ms=0)


def outflow(second: float, depth: int, added: int, *, pair: str = ONE, start: str = "1", kind: str = "mixed") -> Row:
    counted = {"depth": depth, "delivering": 0, "added": added, "removed": added - depth}
    return Row(site="london", ts=at(second), pair=pair, kind=kind, name="*", start=start, **counted)


def queue(second: float, name: str, depth: int, added: int, *, delivering: int = 0, pair: str = ONE) -> Row:
    told = outflow(second, depth, added, pair=pair, kind="queue")
    return replace(told, name=name, acked=added - depth, delivering=delivering)


def look(second: float, depth: int, added: int, *queues: Row, pair: str = ONE) -> list[Row]:
    return [role("serving", second, pair), outflow(second, depth, added, pair=pair), *queues]


STEADY = [row for second in range(11) for row in look(second, 7, 100 + 10 * second)]
"""Ten a second, a reading each second; at each reading seven have not been shipped."""


def came(seconds: int) -> int:
    """The most of such a load in whole seconds: the one in which a stretch begins counts too, and after looks over ten
    seconds no stretch is longer than nine."""
    times, rest = divmod(seconds, 9)
    return 100 * times + (10 * (rest + 1) if rest else 0)


def asked(folder: Path, seconds: float, **more: object) -> Bounds:
    return bounds_of(folder, now=at(seconds), **more)


def ids(found: Bounds) -> list[str]:
    return [finding.id for finding in found.findings]


def test_what_lay_in_the_outflow_and_what_may_have_come_since_is_the_bound(tmp_path: Path) -> None:
    write(STEADY, tmp_path)

    found = asked(tmp_path, 14)

    because = (
        "likely 7, at most 57, because 57 = 7 neither shipped nor consumed at the reading of "
        "2026-03-01T12:00:10.000Z, + at most 50 sent in the 4.00 s until 2026-03-01T12:00:14.000Z, when it was not yet "
        "seen down (assuming the highest rate of the last minutes); it grows by up to 12 a second until it is seen down"
    )
    figures = {"at_most": 57, "likely": 7, "read_at": "2026-03-01T12:00:10.000Z"}
    assert document(found) == {
        "lost": {**figures, "because": because},
        "duplicates": figures,
        "queues": [],
        "age_s": 5.0,
        "because": because,
    }


def test_a_look_at_the_outflow_alone_is_nearer_to_the_end(tmp_path: Path) -> None:
    whole = [each for s in range(11) for each in look(s, 3, 10 * s, queue(s, "orders", 2, 10 * s))]
    near = [each for n in range(41, 57) for each in look(n / 4, 4, 10 * n // 4)]
    write(whole, tmp_path / "whole")
    write([*whole, *near], tmp_path / "near")

    far_off, at_once = (asked(tmp_path / name, 14.25) for name in ("whole", "near"))

    assert far_off.lost.at_most == 2 + 60
    assert at_once.lost.at_most == 4 + 20
    assert at_once.lost.read_at == at(14)
    assert at_once.lost.likely <= 4


def test_what_the_monitor_had_not_written_whole_counts(tmp_path: Path) -> None:
    write(STEADY, tmp_path)
    clock = FixedClock(at(11))
    writer = Writer(tmp_path)
    writer.add(look(10.5, 1, 105, queue(10.5, "orders", 1, 105)))
    clock.passed_s = TAIL_EVERY_S
    writer.add(look(10.75, 2, 107, queue(10.75, "orders", 2, 107)))

    before = asked(tmp_path, 11)
    writer.flush()

    assert (before.lost.read_at, [queue.name for queue in before.queues]) == (at(10.75), ["orders"])
    assert document(asked(tmp_path, 11)) == document(before)
    assert list(tmp_path.rglob("_*")) == []


def test_what_the_sum_says_is_said_once(tmp_path: Path) -> None:
    write(STEADY, tmp_path)

    assert ids(asked(tmp_path, 14)) == []
    write(look(10, 0, 100, pair=TWO), tmp_path)
    of_two = asked(tmp_path, 14, pairs=[ONE, TWO])

    assert of_two.because is None
    assert ids(of_two) == ["DR-RPO-010", "DR-RPO-011"]
    assert "at most 50 sent in the 4.00 s until" in of_two.findings[0].text


STAYS = "waiting does not change this"
FENCED = [role("standby", 11), role("standby", 30), role("down", 40)]


@pytest.mark.parametrize(
    ("later", "now_s", "more", "lost", "because"),
    [
        ([role("unknown", 11), role("down", 12), role("down", 17)], 40, {}, 7 + came(2),
         ("likely 7, at most 37, because 37 = 7 neither shipped nor consumed at the reading of "
         "2026-03-01T12:00:10.000Z, + at most 30 sent in the 2.00 s until 2026-03-01T12:00:12.000Z, when it was "
         f"seen down (assuming the highest rate of the last minutes); {STAYS}")),
        ([], 60, {"down_at": at(20)}, 7 + came(10), "seen down, without a reading before"),
        ([role("unknown", 15)], 3600, {"silent_since": at(13)}, 7 + came(3),
         "when its service had ended, as the operator stated"),
        (FENCED, 60, {"fence_ends": True}, 7 + came(1), "12:00:11.000Z, when clients had been kept out of it"),
        (FENCED, 60, {}, 7 + came(30), "when it was seen down"),
        ([*FENCED[:2], role("unknown", 39), FENCED[2]], 60, {"fence_ends": True}, 7 + came(30), "seen down"),
        (FENCED[:2], 50, {"fence_ends": True, "down_at": at(50)}, 7 + came(1), "when clients had been kept out of it"),
        (FENCED[1:], 60, {"fence_ends": True}, 7 + came(20), "12:00:30.000Z, when clients had been kept out of it"),
        (FENCED, 75, {"fence_ends": True, "down_at": at(75)}, 7 + came(65), "seen down, without a reading before"),
        ([role("down", 12)], 20, {"down_at": at(20), "supposed": True}, 7 + came(10), "when it is taken to be lost"),
    ],
    ids=["seen down by the monitor", "seen down now", "ended by the operator's word", "fenced before",
         "fenced where that ends no sends", "fenced, not read", "fenced, seen down now", "fenced later",
         "not seen for long", "taken for lost"],
)  # fmt: skip
def test_a_site_sent_nothing_after_its_end(
    tmp_path: Path, later: list[Row], now_s: float, more: dict[str, object], lost: int, because: str
) -> None:
    write([*STEADY, *later], tmp_path)

    found = asked(tmp_path, now_s, **more)

    assert found.lost.at_most == lost
    assert because in found.because
    assert (STAYS in found.because) is ("when it is taken" not in because and "without a reading" not in because)


def test_looks_by_a_clock_that_is_a_little_ahead_count_by_that_clock(tmp_path: Path) -> None:
    write([*STEADY, role("down", 12)], tmp_path)

    found = [document(asked(tmp_path, second)) for second in (1, 9, 13, 40)]

    assert found[0]["lost"]["at_most"] == 7 + came(2)
    assert found == [found[0]] * 4


@pytest.mark.parametrize("rows", [[], [replace(row, site="paris") for row in STEADY]])
def test_without_history_of_the_site_nothing_is_known(tmp_path: Path, rows: list[Row]) -> None:
    write(rows, tmp_path)

    found = asked(tmp_path / ("history" if not rows else ""), 14, pairs=[ONE])

    assert document(found) == {
        "lost": {"at_most": None, "likely": None, "read_at": None, "because": None},
        "duplicates": {"at_most": None, "likely": None, "read_at": None},
        "queues": [],
        "age_s": None,
        "because": None,
    }
    assert ids(found) == ["DR-RPO-001", "DR-RPO-005"]
    assert found.exceeds(None, 1000) == (
        "how much london takes with it is not known; accepting 1000 does not cover the unknown",
    )
    assert found.exceeds(None, "unknown") == ()


def test_of_two_pairs_one_unread_makes_the_total_unknown_and_is_named(tmp_path: Path) -> None:
    rows = [*look(0, 0, 0), *look(5, 0, 50), *look(10, 0, 100, queue(10, "orders", 1, 1))]
    write([*rows, role("serving", 10, TWO)], tmp_path)

    for pairs in ([ONE, TWO], []):
        found = asked(tmp_path, 14, pairs=pairs)

        assert (found.lost.at_most, found.lost.read_at) == (None, at(10))
        assert [(queue.lost, queue.duplicates) for queue in found.queues] == [(None, None)]
        assert ids(found) == ["DR-RPO-010", "DR-RPO-005"]
        assert TWO in found.findings[1].text


def busy(folder: Path) -> None:
    """A full outflow, mostly acknowledgements; clients hold something; one queue is nearly empty, one is deep."""
    for second in range(11):
        small = queue(second, "orders.in", 2, 10 + second, delivering=8 - second // 5)
        deep = queue(second, "audit.log", 5000, 5000 + 10 * second, delivering=4)
        write(look(second, 600, 600 + 20 * second, small, deep), folder)


def test_a_long_history_is_not_read_to_its_beginning(tmp_path: Path) -> None:
    (whole,) = write(STEADY, tmp_path)
    raw = whole.read_bytes()
    whole.unlink()
    for day, hour in itertools.product(range(1, 31), range(24)):
        folder = tmp_path / f"date=2026-01-{day:02}" / "site=london"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"202601{day:02}T{hour:02}0000-0.parquet").touch()
    folder = tmp_path / "date=2026-03-01" / "site=london"
    for minute in range(20):
        (folder / f"20260301T11{minute + 40}00-0.parquet").write_bytes(raw)
    write([*STEADY, *look(15, 0, 250)], tmp_path)
    for minute in range(1, 100):  # nor does a silence of many files hide the last reading
        write([role("down", 60 * minute + second, pair) for second in (0, 30) for pair in (ONE, TWO)], tmp_path)
    began = time.process_time()

    found = asked(tmp_path, 60 * 100, pairs=[ONE])

    assert time.process_time() - began < 1
    assert found.lost.at_most == 3 * 150 + 40
    assert ids(found) == ["DR-RPO-003"]  # none of the empty files of the days before was opened


def looked(*rows: Row | list[Row]) -> list[Row]:
    return [each for told in rows for each in (told if isinstance(told, list) else [told])]


def consuming(*read: int) -> list[Row]:
    """Ten a second are sent and eight consumed; the link was cut at 0 s with three hundred left in the queue."""
    of_queue = {s: queue(s, "orders.in", 300 + 2 * s, 5000 + 10 * s) for s in read}
    return looked(
        *(look(s, 18 * s, 9000 + 18 * s, *(row for at, row in of_queue.items() if at == s)) for s in (0, 5, 10))
    )


FORGOTTEN = [row for second in range(5, 700, 5) for row in look(second, 0, 5000 + second)]
AHEAD = [replace(row, ts=row.ts + timedelta(seconds=3700)) for row in look(11, 0, 10_000)]
NEARLY_EMPTY = [look(s, 20 * s, 20 * s, queue(s, "orders.in", 3, 10 * s)) for s in (0, 5, 10)]
AGAIN = {s: replace(queue(s, "orders.in", 300, 10 * s), start="2") for s in (0, 5, 10)}
BEFORE = [[role("serving", s), outflow(s, 80, 4 * s, start="2"), row] for s, row in AGAIN.items()]
AFTER = [
    *([role("serving", s), outflow(s, 0, 20 * s)] for s in (0, 5, 10)),
    *([role("serving", s), outflow(s, 0, 0, start="2")] for s in (15, 20)),
]
# Ten sent and eight consumed a second, and seven more for a queue that nobody read.
UNREAD = [look(s, 25 * s, 9000 + 25 * s, queue(s, "orders.in", 300 + 2 * s, 5000 + 10 * s)) for s in (0, 5, 10)]
ONE_SIDE = [replace(row, kind="mirror") if row.kind == "mixed" else row for row in STEADY]
NEVER = [role("unknown", 0), role("sick", 5), role("down", 10)]
# The link stalls: most of what lies in the outflow are acknowledgements.
STALLED = [*(look(s, 20 * s, 20 * s, queue(s, "orders", 1, 10 * s)) for s in range(11)), look(10.25, 205, 205)]
BOTH = looked(STEADY, [replace(row, pair=TWO) for row in STEADY], look(15, 1, 250))
DOWN, NOT_DOWN = role("down", 12), role("unknown", 17)
HARDLY = looked(*(look(s, 0, 100 + s // 5, queue(s, "orders.in", 0, 50 + s // 5)) for s in (0, 5, 10)))
AT_REST = looked(*(look(s, 0, 100, queue(s, "orders.in", 0, 50)) for s in (0, 5, 10)))
ANY = -1
BY_HAND: dict[str, tuple[list[Row], float, dict[str, object], int | None, int | None, str]] = {
    "without a rate": (STEADY[:2], 14, {}, None, None, "DR-RPO-011"),
    "hardly a rate": (STEADY[:4], 14, {}, None, None, "DR-RPO-011"),
    "a site that never answered is not an empty one": (NEVER, 14, {"pairs": [ONE]}, None, None, "DR-RPO-005"),
    # Each of the five that were put in since the queue was looked at may be a message, and one that was sent then.
    "what was consumed, by the queue": (looked(*STALLED), 10.5, {}, 1 + 20, ANY, ""),
    # Five seconds lie before the last reading of one of the pairs: no burst, as ten show ten a second.
    # Of 180 things in the outflow a hundred are messages, by what the queue counted since all was shipped.
    # At the cut: the counters say nothing of what came since. At the last reading: what was put in since may be either.
    **{f"a queue that was read at {read} s": (consuming(*read), 10, {}, *most, "") for read, most in (
        ((0, 5, 10), (100, 80)), ((5, 10), (180, 180)), ((0, 5), (50 + 90, 40 + 90)), ((), (180, 180)))},
    "two pairs, from the oldest of their looks": (BOTH, 16, {}, (1 + 20) + (7 + came(6)), ANY, ""),
    # A second may lie on either side of a reading.
    "the highest rate, not the last": (
        looked(look(0, 0, 0), look(5, 0, 500), look(10, 0, 505), look(15, 0, 510)), 16, {}, 505, ANY, ""),
    "a rate of long ago": ([*look(0, 0, 0), *FORGOTTEN], 705, {}, 15, ANY, ""),
    "where looks are rare": (
        looked(look(0, 0, 0), look(1000, 0, 9000), look(2000, 0, 10**4), look(3e3, 0, 12000)), 3010, {}, 3000, ANY, ""),
    # Then a restart, and a network that is away: it served on, and nobody saw it.
    "seen down once": (looked(STEADY, DOWN, NOT_DOWN, role("unknown", 22)), 40, {}, 7 + came(30), ANY, ""),
    "seen down long ago": (looked(STEADY, DOWN, role("down", 17)), 3600, {}, 7 + came(3590), ANY, "DR-RPO-003"),
    **{f"{each} after it was down": (looked(STEADY, DOWN, role(each, 13), NOT_DOWN), 20, {}, 7 + came(10), ANY, "")
       for each in ("sick", "standby", "serving")},
    "a word older than what was read": (STEADY, 3600, {"silent_since": at(3)}, 7, ANY, ""),
    "a word on what is to come": (STEADY, 12, {"silent_since": at(50)}, 7 + came(2), ANY, ""),
    "counters that begin anew": (
        looked(STEADY, outflow(15, 4, 900, start="2"), outflow(20, 2, 905, start="2")), 22, {}, 42, ANY, ""),
    "a pair that is not asked for": (
        looked(STEADY, look(10, 900, 900, pair=TWO)), 14, {"pairs": [ONE]}, 7 + came(4), ANY, ""),
    # Fifty came to it at once since; its counter begins below where it was.
    "a queue that was re-created": (looked(*(look(s, 0, 100 + 50 * (s > 4), queue(s, "orders", 0, 100 - 50 * (s > 4)))
                                            for s in range(11))), 12, {}, 50, ANY, ""),
    "a queue that is nearly empty": (looked(*NEARLY_EMPTY), 10, {}, 3, ANY, ""),
    "a depth of before a restart": (looked(*BEFORE), 10, {}, 80, ANY, ""),
    "what an outflow got before a restart": (looked(*AFTER), 22, {}, 200, 200, ""),
    "what no queue accounts for": (looked(*UNREAD), 10, {}, 100 + 70, 80 + 70, ""),
    # It goes on getting more, which the queues that were read do not tell: ten seconds of both lie around any two.
    "what no queue accounts for goes on": (looked(*UNREAD), 12, {}, 100 + 70 + 170, 80 + 70 + 150, ""),
    # A monitor looks on between the reading of a command and its reading of the history.
    "taken for lost, and goes on": (STEADY, 12, {"down_at": at(8)}, 7, ANY, ""),
    "a time that is not yet": (looked(STEADY, DOWN, AHEAD), 14, {}, 7 + came(2), ANY, "DR-RPO-031"),
    "deliveries that were not read": (
        looked(STEADY, replace(queue(10, "orders", 1, 1), delivering=None)), 14, {}, 7 + came(4), None, "DR-RPO-"),
    "what answered when it was not read is compared with nothing": (
        [replace(role("standby", -300), site="paris", start="1"), *STEADY], 14, {"other": "paris"}, 57, ANY, ""),
    "a side that nobody reads": (ONE_SIDE, 14, {}, 7 + came(4), None, "DR-RPO-"),
    "at rest, and looked at minutes ago": (AT_REST, 600, {}, 0, ANY, "DR-RPO-003"),
    "at rest, and not looked at for hours": (AT_REST, 72 * 3600, {}, None, None, "DR-RPO-011"),
    "hardly a pace, and looked at minutes ago": (HARDLY, 600, {}, 236, ANY, "DR-RPO-003"),
    "hardly a pace, and not looked at for hours": (HARDLY, 72 * 3600, {}, None, None, "DR-RPO-011"),
    "a stale look": (STEADY, 110, {}, 7 + came(100), ANY, "DR-RPO-003"),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_bounds_by_hand(tmp_path: Path, name: str) -> None:
    rows, now_s, more, lost, duplicates, finding = BY_HAND[name]
    write(rows, tmp_path)

    found = asked(tmp_path, now_s, **more)

    assert found.lost.at_most == lost
    assert duplicates in (ANY, found.duplicates.at_most)
    assert finding in " ".join(ids(found))


@pytest.mark.parametrize("in_its_middle", [False, True])
def test_a_torn_newest_file_is_named_and_the_look_before_it_counts(tmp_path: Path, *, in_its_middle: bool) -> None:
    write(STEADY, tmp_path)
    (newest,) = write(look(15, 0, 250), tmp_path)
    raw, part = newest.read_bytes(), newest.stat().st_size // 4
    newest.write_bytes(raw[:4] + bytes(part) + raw[4 + part :] if in_its_middle else raw[:-20])

    found = asked(tmp_path, 16)

    assert found.lost.at_most == 7 + came(6)
    assert ids(found) == ["DR-RPO-002"]
    assert newest.name in found.findings[0].text


def test_queues_of_a_full_outflow_and_what_clients_hold(tmp_path: Path) -> None:
    busy(tmp_path)

    found = asked(tmp_path, 11)
    some = asked(tmp_path, 11, include=("orders.#", "audit.#"), exclude=("audit.*",))

    # 600 lay there, whatever they were; since then 11 messages a second were sent, 20 things a second put in; three a
    # second were acknowledged, and clients held twelve.
    assert (found.lost.at_most, found.duplicates.at_most) == (600 + 22, 600 + 22 + 8 + 4)
    assert {queue.name: (queue.lost, queue.duplicates) for queue in found.queues} == {
        "audit.log": (600 + 20, 600 + 20 + 4),
        "orders.in": (2 + 2, 600 + 2 + 8),
    }
    # Patterns narrow the queues and never the total.
    assert [queue.name for queue in some.queues] == ["orders.in"]
    assert some.lost.at_most == found.lost.at_most


QUEUE, OUTFLOW = "orders", ("mixed", "*")
STEP_S, RATE = 0.05, 40


def test_a_link_that_is_cut_just_after_the_queues_were_read_has_a_likely_figure(tmp_path: Path) -> None:
    """What lay in the outflow then, one or two in step, says nothing of what it is made of now; and what grew goes on
    growing after the last reading, a second and a half before the end."""
    site, rows, died_s = FifoSite(ONE, "mixed", (QUEUE,)), list[Row](), 24.0
    for number in range(round(died_s / STEP_S) + 1):
        now = number * STEP_S
        for _ in range(2):
            site.send(QUEUE, now)
        for _ in range((number % 20 in (0, 7, 14)) * RATE // 5):
            site.consume(QUEUE)
        for _ in range(RATE if now < died_s - 3.9 else 0):
            site.ship(OUTFLOW)
        if number % 5 == 0 and now <= died_s - 1.5:
            rows += [row for row in site.look(now) if row.kind != "queue" or number % 100 == 0]
            rows.append(role("serving", now))
    write([*rows, role("down", died_s + 0.2)], tmp_path)

    found = bounds_of(tmp_path, now=at(died_s + 1))

    truth = site.truth(died_s)
    assert (truth.loss, truth.duplicates) == (158, 96)
    assert (found.lost.likely, found.duplicates.likely) == (pytest.approx(158, abs=10), pytest.approx(96, abs=10))


def test_half_a_message_in_each_of_many_queues_is_not_nothing(tmp_path: Path) -> None:
    """Of 600 things in five seconds, half of them messages, the last hundred have not been shipped."""
    for at_s in range(5, 50, 5):
        queues = (queue(at_s, f"orders.{number}", 2, 3 * at_s // 5) for number in range(100))
        write(look(at_s, 100, 120 * at_s, *queues), tmp_path)

    found = asked(tmp_path, 45)

    assert (found.lost.likely, found.duplicates.likely) == (50, 50)


def classes(**limits: int | None) -> Objectives:
    told = tuple(LossClass((f"{name}.#",), LossLimit(limit)) for name, limit in limits.items())
    return Objectives(LossLimit(100_000), told)


def test_a_class_is_judged_by_its_own_queues(tmp_path: Path) -> None:
    busy(tmp_path)
    told = classes(orders=4, audit=619, absent=39, free=None)

    found = asked(tmp_path, 11, objectives=told)

    assert [(group.queues, group.lost, group.exceeded) for group in found.classes] == [
        (("orders.#",), 4, False),
        (("audit.#",), 620, True),
        (("absent.#",), 40, True),  # what was not there yet can only hold what came since
        (("free.#",), 40, False),
    ]
    assert found.exceeds(told) == (
        "up to 620 message(s) of audit.# may be lost, their objective allows 619",
        "up to 40 message(s) of absent.# may be lost, their objective allows 39",
    )
    assert found.exceeds(told, 622) == ()


@pytest.mark.parametrize("limit", [56, 57, 58, None])
def test_exactly_the_limit_is_not_above_it_and_without_one_nothing_may_be_lost(
    tmp_path: Path, limit: int | None
) -> None:
    write(STEADY, tmp_path)
    found = asked(tmp_path, 14)

    assert bool(found.exceeds(Objectives(LossLimit(limit)))) is (limit == 56)
    assert bool(found.exceeds(None, limit)) is (limit in (56, None))
    assert found.exceeds(Objectives(LossLimit(56))) == ("up to 57 message(s) may be lost, the objectives allow 56",)
    assert found.exceeds(None) == ("up to 57 message(s) may be lost, no objectives are set that allow any",)


AGED = Objectives(LossLimit(None, 12.0))
"""Any number may be lost, none older than twelve seconds."""
LEFT = "messages may be lost and the oldest is up to 14 s old, the objectives allow 12 s"
UNKNOWN = "how much london takes with it is not known"
UNTOLD = "messages may be lost and how old they are is not known, the objectives allow 12 s"
AUDITED = Objectives(LossLimit(None), (LossClass(("audit.#",), LossLimit(None, 3.0)),))
OF_AUDIT = "messages of audit.# may be lost and the oldest is up to 9.00 s old, the objectives allow 3.00 s"


@pytest.mark.parametrize(
    ("rows", "age_s", "limits", "reasons"),
    [
        (STEADY, 5.0, AGED, ()),  # seven of two hundred are left: the first came after the reading a second before
        ([*look(0, 0, 0), *look(5, 0, 50), *look(10, 0, 100)], 4.0, AGED, ()),
        ([*look(0, 0, 0), *look(5, 50, 50), *look(10, 100, 100)], 14.0, AGED, (LEFT,)),
        ([*look(0, 3, 40), *look(5, 53, 90), *look(10, 103, 140)], None, AGED, (UNTOLD,)),
        ([role("serving", 0), outflow(0, 0, 0), outflow(10, 7, 7, start="2")], None, AGED, (UNKNOWN,)),
        ([*look(0, 0, 0), *look(5, 0, 0), *look(10, 0, 0)], 4.0, AGED, ()),
        ([*look(0, 0, 0), *look(5, 0, 50, queue(5, "audit.x", 0, 50)),
          *look(10, 50, 100, queue(10, "audit.x", 50, 100))], 9.0, AUDITED, (OF_AUDIT,)),
    ],
    ids=["some left", "empty", "all left", "longer than the readings", "restarted", "nothing is lost", "of a class"],
)  # fmt: skip
def test_the_oldest_that_may_be_lost_was_put_in_after_a_look_and_is_judged_unless_a_loss_is_accepted(
    tmp_path: Path, rows: list[Row], age_s: float | None, limits: Objectives, reasons: tuple[str, ...]
) -> None:
    write(rows, tmp_path)

    found = asked(tmp_path, 14, objectives=limits)

    assert (found.age_s, found.exceeds(limits)) == (age_s, reasons)
    assert found.exceeds(limits, accept=1000) == () or found.lost.at_most is None


@pytest.mark.parametrize(
    ("duplicates", "objective", "accept", "why"),
    [
        # Without a limit they are accepted by name, as a loss is.
        (4100, None, None, "up to 4100 duplicate(s) are possible, likely 80; `objectives.duplicates` is not set"),
        (0, None, None, None),
        (4100, 4100, None, None),
        (4100, 300, 4100, None),  # a person's word replaces the objective
        # `unknown` accepts what is not known, and no figure that is.
        (4100, 300, "unknown", "up to 4100 duplicate(s) are possible, likely 80; `objectives.duplicates` allows 300"),
        (None, None, None, "how many duplicates are possible is not known"),
        (None, None, "unknown", None),
        (4100, 300, None, "up to 4100 duplicate(s) are possible, likely 80; `objectives.duplicates` allows 300"),
        (4100, None, 300, "up to 4100 duplicate(s) are possible, likely 80; 300 are accepted"),
        (None, 300, None, "how many duplicates are possible is not known; a limit of 300 does not cover the unknown"),
    ],
)
def test_above_the_limit_is_refused(
    duplicates: int | None, objective: int | None, accept: int | Literal["unknown"] | None, why: str | None
) -> None:
    limits = Objectives(duplicates=objective) if objective is not None else None

    bound = Bound(duplicates, None, likely=80 if duplicates is not None else None)
    assert Bounds("london", Loss(0, None), bound).doubles(limits, accept) == why


LEFT_THERE = 40


def look_there(second: float, *, there: int | None = 40, role: str = "serving", depth: int = 0) -> list[Row]:
    """A site that sends and acknowledges ten a second, all of it shipped; `there` lies at the other one."""
    sent = int(second * 10)
    of = Row(site="london", ts=at(second), pair="orders-1", kind="queue", name="orders", start="1", delivering=0)
    queue = replace(of, depth=depth, added=sent, acked=sent, removed=sent)
    shipped = replace(of, depth=0, added=sent, removed=sent)
    rows = [
        Row(site="london", ts=at(second), pair="orders-1", kind="site", name=role, took_ms=0),
        queue,
        replace(shipped, kind="mirror"),
        replace(shipped, kind="acks"),
    ]
    beside = [replace(of, kind="staged", depth=there), replace(of, kind="uncopied", depth=0)]
    return rows if there is None else [*rows, *beside]


def texts_of(found: Bounds, id_: str) -> list[str]:
    return [finding.text for finding in found.findings if finding.id == id_]


def looks_there(times: range, **more: Any) -> list[Row]:
    return [row for second in times for row in look_there(second, **more)]


# Of the most of the last readings none of before counts: two sites are not read at quite the same instant.
DEPTHS = [9000, LEFT_THERE + 3, *[LEFT_THERE] * (READINGS - 1)]
LAST = [row for number, depth in enumerate(DEPTHS) for row in look_there(5 * number, there=depth)]


BESIDE = looks_there(range(0, 15, 5), there=LEFT_THERE + 7, depth=7)
AGAIN_THERE = [replace(row, start="2") for row in looks_there(range(15, 30, 5), there=None, role="standby")]
RESTARTED = [
    *AGAIN_THERE,
    *(replace(row, site="paris", depth=LEFT_THERE) for row in AGAIN_THERE if row.kind in ("site", "queue")),
]


@pytest.mark.parametrize(
    ("rows", "now_s", "most"),
    [
        *(
            (
                [*looks_there(range(0, 15, 5)), *looks_there(range(15, 15 + 5 * silent, 5), there=None)],
                10 + 5 * silent,
                50 * silent,
            )
            for silent in range(1, 4)
        ),
        ([*looks_there(range(0, 15, 5), there=9000, role="standby"), *looks_there(range(15, 30, 5))], 25, 0),
        (LAST, 5 * (len(DEPTHS) - 1), 3),
        (BESIDE, 10, 0),
        (BESIDE, 11, 100),
        ([*looks_there(range(0, 15, 5)), *RESTARTED], 25, 0),
    ],
    ids=["once", "twice", "silent: all that was acknowledged since", "did not serve", "the last readings",
         "beside what is on its way", "and as many as from look to look", "there alone after a restart"],
)  # fmt: skip
def test_what_lies_at_the_other_site_is_that_of_its_last_looks_and_comes_twice(
    tmp_path: Path, rows: list[Row], now_s: float, most: int
) -> None:
    write(rows, tmp_path)

    found = asked(tmp_path, now_s, other="paris" if any(row.site == "paris" for row in rows) else None)

    assert found.duplicates.at_most == LEFT_THERE + most
    if rows is BESIDE and not most:
        assert [(queue.lost, queue.duplicates) for queue in found.queues] == [(0, LEFT_THERE)]
        assert found.lost.at_most == 0
        assert "orders: 40" in texts_of(found, "DR-RPO-022")[0]


def test_what_was_never_read_is_said_and_is_no_zero_also_where_queues_were_not_read(tmp_path: Path) -> None:
    write(looks_there(range(0, 15, 5), there=None), tmp_path / "staged")
    write([row for row in looks_there(range(0, 15, 5)) if row.kind != "queue"], tmp_path / "queues")
    found, other = asked(tmp_path / "staged", 10), asked(tmp_path / "queues", 11)

    assert "orders" in texts_of(found, "DR-RPO-021")[0]
    assert texts_of(found, "DR-RPO-022") == []
    assert "at the other site of london were not read: orders" in texts_of(other, "DR-RPO-021")[0]


def test_of_a_backlog_of_before_a_restart_nobody_knows_how_much_likely_comes_twice(tmp_path: Path) -> None:
    write(looked(*([*before, replace(row, depth=30)] for *before, row in BEFORE)), tmp_path)

    found = asked(tmp_path, 10)

    assert (found.lost.at_most, found.lost.likely) == (30, 30)
    assert (found.duplicates.at_most, found.duplicates.likely) == (80, None)


PAIR, DIED_S = "orders-1", 20.0
Depths = Mapping[str, tuple[int, int]]
"""By queue what lies at london and at paris."""


def look_at_both(
    second: float, depths: Depths, flows: Mapping[tuple[str, str], int], *, met: bool = True
) -> Iterator[Row]:
    """Of a broker at rest; `flows` are its outflows. `met`: paris answered too."""

    def row(site: str, kind: str, name: str, depth: int | None, **more: Any) -> Row:
        return Row(site=site, ts=at(second), pair=PAIR, kind=kind, name=name, depth=depth, **more)

    counted: dict[str, Any] = {"added": 1000, "removed": 1000, "start": "1"}
    yield row("london", "site", "serving", None, start="1", took_ms=9)
    yield row("paris", "site", "standby" if met else "unknown", None, start="7" if met else None, took_ms=9)
    for (kind, name), depth in flows.items():
        yield row("london", kind, name, depth, link=True, **counted)
    for name, (here, there) in depths.items():
        yield row("london", "queue", name, here, acked=1000, delivering=0, **counted)
        if met and ("acks", name) in flows:
            yield row("london", "staged", name, there, start="1")
            yield row("london", "uncopied", name, max(0, here - there), start="1")
        if met:
            yield row("paris", "queue", name, there, acked=0, delivering=0, added=60, removed=0, start="7")


def asked_of_both(folder: Path, rows: list[Row], **more: Any) -> Bounds:
    down = Row(site="london", ts=at(DIED_S + 0.2), pair=PAIR, kind="site", name="down", took_ms=1)
    write([*rows, down], folder)
    return bounds_of(folder, other="paris", now=at(DIED_S + 1), pairs=[PAIR], **more)


def at_rest(depths: Depths, flows: Mapping[tuple[str, str], int], **more: Any) -> list[Row]:
    return [row for number in range(21) for row in look_at_both(number, depths, flows, **more)]


MIRROR = {("mixed", "*"): 0}
NOTHING_ON_ITS_WAY = {
    "a mirror": MIRROR,
    "the plugin": {(kind, name): 0 for kind in ("mirror", "acks") for name in ("orders.in", "audit.log")},
}


@pytest.mark.parametrize("flows", NOTHING_ON_ITS_WAY.values(), ids=NOTHING_ON_ITS_WAY)
def test_where_sites_differ_and_nothing_is_on_its_way_nobody_can_say_how_much_is_lost(
    tmp_path: Path, flows: Mapping[tuple[str, str], int]
) -> None:
    """As with an address filter and without acknowledgements."""
    found = asked_of_both(tmp_path, at_rest({"orders.in": (20, 60), "audit.log": (30, 0), "calm": (5, 5)}, flows))

    assert (found.lost.at_most, found.lost.likely) == (None, None)
    assert [(queue.name, queue.lost) for queue in found.queues] == [("audit.log", None), ("calm", 0), ("orders.in", 0)]
    alone = f"audit.log: 30 at london{'' if flows is MIRROR else ', 30 of them without a copy'}, 0 at paris"
    assert f"at least 30: {alone}" in found.because
    [differ] = [finding for finding in found.findings if finding.id == "DR-PARITY-001"]
    assert differ.severity is Severity.WARNING
    assert alone in differ.text
    assert found.exceeds(None, 0)
    assert found.exceeds(None, 1000)
    assert found.exceeds(None, "unknown") == ()
    if flows is MIRROR:
        assert found.duplicates.at_most is None
        assert "orders.in: 20 at london, 60 at paris" in differ.text
        assert found.doubles(None, 1000) is not None
    else:  # staged copies of lost acknowledgements are its own knowledge
        assert (found.duplicates.at_most or 0) >= 40


@pytest.mark.parametrize(
    ("compared", "last", "lost", "duplicates", "why"),
    [
        (0, ("orders.in", 0), 2, 0, "2 = 2 neither shipped"),
        (
            0,
            ("orders.in", 3),
            None,
            3,
            "at least 3: orders.in: 22 at london, 3 of them without a copy, 20 at paris: more",
        ),
        (0, ("orders.in", 3, 3), 5, 3, "+ 3 only at london (orders.in: 22 at london, 3 of them without a copy, 20 at"),
        (None, ("*", None), 24, 20, "+ 22 perhaps only at london (orders.in: 22 at london, 20 at paris, not compared"),
        # Left out of the last comparison, which had another queue.
        (0, ("audit.log", 0), 24, 20, "+ 22 perhaps only at london"),
    ],
)
def test_messages_without_a_copy_and_copies_left_over_do_not_cancel_each_other_out(
    tmp_path: Path, compared: int | None, last: tuple[Any, ...], lost: int | None, duplicates: int, why: str
) -> None:
    """With the plugin: two of the queue's messages are to be shipped, and ids tell the rest: name, how many have no
    copy, how many of these are held by clients."""
    rows = at_rest({"orders.in": (22, 20)}, {("mirror", "orders.in"): 2, ("acks", "orders.in"): 0})
    end = max(row.ts for row in rows)
    told = {True: last, False: ("*" if compared is None else "orders.in", compared)}
    columns = ("name", "depth", "delivering")
    by_id: dict[bool, Any] = {is_last: dict(zip(columns, of, strict=False)) for is_last, of in told.items()}

    found = asked_of_both(
        tmp_path, [replace(row, **by_id[row.ts == end]) if row.kind == "uncopied" else row for row in rows]
    )

    assert (found.lost.at_most, found.duplicates.at_most) == (lost, duplicates)
    of_queue = 22 if lost == 24 else lost  # all that lies here, what is to ship among it
    assert [(queue.lost, queue.duplicates) for queue in found.queues] == [(of_queue, duplicates)]
    assert why in (found.because or "")


def test_an_old_comparison_of_ids_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = at_rest({"orders.in": (22, 20)}, {("mirror", "orders.in"): 2, ("acks", "orders.in"): 0})
    end = max(row.ts for row in rows)
    rows = [replace(row, depth=0) if row.kind == "uncopied" else row for row in rows]
    early = [row for row in rows if row.kind != "uncopied" or row.ts < end - timedelta(seconds=10)]

    assert asked_of_both(tmp_path / "young", early).lost.at_most == 2
    monkeypatch.setattr(readings, "COMPARED_US", 5_000_000)
    assert asked_of_both(tmp_path / "old", early).lost.at_most == 24


def test_what_comes_to_a_queue_that_nothing_ships_is_lost_too(tmp_path: Path) -> None:
    rows = []
    for number in range(21):
        sent = 10 * number
        rows += look_at_both(number, {"orders.in": (0, 0)}, {("mirror", "orders.in"): 0, ("acks", "*"): 0})
        rows.append(Row(site="london", ts=at(number), pair=PAIR, kind="queue", name="local", depth=0, delivering=0,
                        added=sent, removed=sent, acked=sent, start="1"))  # fmt: skip

    found = asked_of_both(tmp_path, rows)

    assert 10 <= found.lost.at_most <= 40
    limit = Objectives(LossLimit(10**6), (LossClass(("local",), LossLimit(0)),))
    [of_class] = asked_of_both(tmp_path / "again", rows, objectives=limit).classes
    assert of_class.lost == found.lost.at_most


THREE = {"orders.in": (20, 60), "audit.log": (30, 0), "calm": (5, 5)}
# As of the site that serves since a failover: what the lost one had not shipped lies there alone.
TO_SHIP: dict[str, Any] = {"site": "paris", "pair": PAIR, "kind": "mixed", "name": "*", "start": "7", "depth": 12}
BRIDGED = {("mirror", "orders.in"): 2, ("acks", "*"): 0}  # ids tell the copies of what was done
Figures = tuple[int, int]
EXPLAINED: dict[str, tuple[list[Row], dict[str, Any], Figures, int, dict[str, Figures], str]] = {
    "what is on its way": (at_rest({"orders.in": (20, 60), "audit.log": (30, 0)}, {("mixed", "*"): 70}), {},
        (50, 70), 50, {"audit.log": (30, 70), "orders.in": (20, 70)}, ""),
    "excluded queues": (at_rest(THREE, MIRROR), {"exclude": ["audit.#", "orders.#"]}, (0, 0), 0, {"calm": (0, 0)}, ""),
    "included queues": (at_rest(THREE, MIRROR), {"include": ["calm"]}, (0, 0), 0, {"calm": (0, 0)}, ""),
    "queues whose content may differ, by what was seen": (
        at_rest({"DLQ": (30, 4), "expired": (0, 3)}, MIRROR), {"may_differ": {"DLQ", "expired"}},
        (26, 3), 26, {"DLQ": (26, 0), "expired": (0, 3)}, ""),
    "what the other site still had to ship": (
        [*at_rest({"orders.in": (40, 52)}, MIRROR),
         *(Row(**TO_SHIP, ts=at(number), added=12, removed=0) for number in range(21))], {},
        (0, 12), 0, {"orders.in": (0, 12)}, ""),
    "a site that did not answer": (
        at_rest({"orders.in": (20, 60)}, MIRROR, met=False), {}, (0, 0), 0, {"orders.in": (0, 0)}, ""),
    "a queue without a bridge of its own is lost with its site": (
        at_rest({"orders.in": (20, 500), "local": (30, 0)}, BRIDGED), {},
        (32, 0), 32, {"local": (30, 0), "orders.in": (2, 0)}, "+ 30 only at london (local: 30 at london, 0 at paris)"),
    # As after a return with bridges, while clients have not come to these copies yet.
    "copies of what was done at the other site make a bound of all that lies here": (
        at_rest({"orders.in": (90, 40)}, BRIDGED), {}, (90, 0), 2, {"orders.in": (90, 0)},
        "orders.in: 90 at london, 40 at paris, copies of what was done at paris among them"),
    "no bound is below what the last reading of both sites shows": (
        [*at_rest({"orders.in": (50, 50)}, MIRROR)[:-4],
         *look_at_both(20, {"orders.in": (57, 50), "audit.log": (0, 6)}, MIRROR)], {},
        (7, 6), 0, {"audit.log": (0, 6), "orders.in": (7, 0)}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_difference_that_is_explained_is_told_by_its_figures(tmp_path: Path, name: str) -> None:
    rows, more, figures, likely, queues, because = EXPLAINED[name]
    found = asked_of_both(tmp_path, rows, **more)

    assert (found.lost.at_most, found.duplicates.at_most, found.lost.likely, found.findings) == (*figures, likely, ())
    assert {queue.name: (queue.lost, queue.duplicates) for queue in found.queues} == queues
    assert because in (found.because or "")


def test_two_sites_that_are_not_read_in_one_instant_do_not_differ(tmp_path: Path) -> None:
    """Counts of a queue at work wander around each other."""
    rows: list[Row] = []
    for number in range(81):
        second, wander = number / 4, (3, 0, -4, 1)[number % 4]
        for row in look_at_both(second, {"orders.in": (50, 50 + wander), "audit.log": (55 + wander, 50)}, MIRROR):
            counts = {"added": 1000 + number * 10, "acked": 1000 + number * 10}
            rows.append(replace(row, **counts) if row.site == "london" and row.kind != "site" else row)

    found = asked_of_both(tmp_path, rows)

    assert found.lost.at_most is not None
    assert found.duplicates.at_most is not None
    assert found.findings == ()


def test_a_difference_is_one_until_both_sites_are_read_again(tmp_path: Path) -> None:
    """However long one of them is away."""
    write(at_rest({"audit.log": (30, 0)}, MIRROR), tmp_path)
    for minute in range(1, 90):
        moments = range(60 * minute, 60 * minute + 60, 10)
        write(
            [row for at_s in moments for row in look_at_both(at_s, {"audit.log": (30, 0)}, MIRROR, met=False)], tmp_path
        )

    found = bounds_of(tmp_path, other="paris", now=at(90 * 60), down_at=at(90 * 60), pairs=[PAIR])

    assert found.lost.at_most is None
    assert "at least 30: audit.log: 30 at london, 0 at paris" in (found.because or "")


@pytest.mark.parametrize(("came", "start", "lost"), [(30, "7", 0), (31, "7", None), (31, "8", 0)])
def test_where_more_came_to_the_other_site_since_than_the_pace_explains_nothing_is_bounded(
    tmp_path: Path, came: int, start: str, lost: int | None
) -> None:
    """As where clients came back to work after the last reading. After a restart there counters tell nothing."""
    live = Row(site="paris", ts=at(30), pair=PAIR, kind="queue", name="calm", added=60 + came, start=start)

    found = asked_of_both(tmp_path, at_rest({"calm": (5, 5)}, {("mixed", "*"): 30}), live=[live])

    unbounded = [finding.text for finding in found.findings if finding.id == "DR-RPO-011"]
    known = found.lost.at_most is not None, found.duplicates.at_most is not None, found.queues[0].lost is not None
    assert (known, bool(unbounded)) == ((lost is not None,) * 3, lost is None)
    assert all(f"{came} message(s) came to the other site since" in text for text in unbounded)


def test_a_reading_whose_counts_do_not_match_takes_no_backlog_of_a_dead_link_for_lost(tmp_path: Path) -> None:
    """Each message waits for the link, and is consumed at the site. The last reading counts one more in the outflow
    than came to the queue, because one broker's counters are not read in one instant."""
    rows = []
    for second in range(11):
        sent = 500 + 10 * second
        sends = replace(outflow(second, sent + (second == 10), sent + (second == 10), kind="mirror"), name="orders")
        rows += [role("serving", second), sends, queue(second, "orders", 0, sent)]
    write(rows, tmp_path)

    lost = asked(tmp_path, 11).lost

    assert lost.at_most is not None
    assert lost.at_most <= came(2) + 1


def test_what_clients_have_consumed_since_both_sites_were_compared_is_not_lost(tmp_path: Path) -> None:
    """Five messages were to ship when both were read, of which two are left at the last reading of london."""
    flows = {("mirror", "calm"): 5}
    apart = [row for second in range(20) for row in look_at_both(second, {"calm": (5, 0)}, flows)]
    alone = look_at_both(20, {"calm": (2, 0)}, flows, met=False)

    before, after = asked_of_both(tmp_path / "before", apart), asked_of_both(tmp_path / "after", [*apart, *alone])

    assert (before.lost.at_most, after.lost.at_most) == (5, 2)


@pytest.mark.parametrize(("start", "lay", "lost"), [("1", 30, 130), ("2", 30, 130), ("1", 0, 100)])
def test_what_came_to_a_queue_that_nothing_ships_while_the_other_site_was_away_is_lost(
    tmp_path: Path, start: str, lay: int, lost: int
) -> None:
    """A message a second, for a hundred seconds after both sites were read; perhaps to a new queue of that name."""
    rows = [row for second in range(20) for row in look_at_both(second, {"alone": (30, 0)}, {("mirror", "calm"): 0})]
    for second in range(20, 120):
        came = second - 19
        read = look_at_both(second, {"alone": (lay + came, 0)}, {("mirror", "calm"): 0}, met=False)
        counts = {"added": 1000 + came} if lay else {"added": came, "acked": 0}
        told = [replace(row, **counts) if row.kind == "queue" else row for row in read]
        rows += [replace(row, start=start) if row.start == "1" else row for row in told]
    down = Row(site="london", ts=at(119.5), pair=PAIR, kind="site", name="down", took_ms=1)
    write([*rows, down], tmp_path)

    found = bounds_of(tmp_path, other="paris", now=at(120), pairs=[PAIR])

    assert found.lost.at_most is not None
    assert (found.lost.likely, found.lost.at_most) == (lost, pytest.approx(lost, abs=2))


def test_a_queue_that_nothing_ships_and_that_is_gone_at_both_sites_is_no_loss(tmp_path: Path) -> None:
    """As a reply queue that comes and goes."""
    rows = [row for second in range(10) for row in look_at_both(second, {"reply": (3, 0)}, {("mirror", "calm"): 0})]
    rows += [row for second in range(10, 20) for row in look_at_both(second, {"calm": (0, 0)}, {("mirror", "calm"): 0})]

    assert asked_of_both(tmp_path, rows).lost.at_most == 0


@pytest.mark.parametrize(("depth", "expected"), [(None, 30), (50, 30), (12, 12)])
def test_no_more_is_likely_to_come_twice_than_lies_at_the_other_site(
    tmp_path: Path, depth: int | None, expected: int
) -> None:
    live = Row(site="paris", ts=at(30), pair=PAIR, kind="queue", name="calm", depth=depth, added=60, start="7")

    found = asked_of_both(
        tmp_path, at_rest({"calm": (5, 35)}, {("mirror", "calm"): 0, ("acks", "calm"): 30}), live=[live]
    )

    assert found.duplicates.likely == expected <= (found.duplicates.at_most or 0)


def test_no_end_of_the_service_keeps_a_loss_within_a_limit_that_nobody_knows(tmp_path: Path) -> None:
    write(at_rest({"audit.log": (30, 0)}, MIRROR), tmp_path)

    lost = LostSite(site="london", now=at(60), pairs=[PAIR])
    assert latest_end(HistoryLocation.at(tmp_path), replace(lost, other="paris"), 1000) is None
    assert latest_end(HistoryLocation.at(tmp_path), lost, 1000) is not None
