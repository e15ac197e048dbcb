"""One death has one bound, however late it is asked for, however its readings lie in files, and whatever went wrong
with them; and a time in which nobody looked is no burst: after it the bound is near the truth, and holds the bursts
that there may be. Files are those of a real `Writer`, hours those of a real `Upkeep`; no test waits for a clock."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.document import document
from dr_ctl.core.model import Role
from dr_ctl.rpo.bounds.bounds import latest_end
from dr_ctl.rpo.bounds.result import Bounds, LostSite
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.upkeep import Upkeep
from dr_ctl.rpo.history.writer import Writer
from dr_ctl.settings.model import HistoryLocation
from tests.clocks import FixedClock
from tests.rpo.fifo import FifoSite, at
from tests.rpo.files import bounds_of, write

PAIR, QUEUE = "orders-1", "orders"
DIED_S, STEP_S, PACE = 130.0, 0.05, 40
DELAYS_S = (5, 65, 300, 3600, 43_200, 259_200)
"""So long after the death it is asked."""
DAY_S = 86_400.0
Look = tuple[float, list[Row]]


def role(second: float, name: str, took_ms: int = 10) -> Row:
    return Row(site="london", ts=at(second), pair=PAIR, kind="site", name=name, took_ms=took_ms)


def lived() -> Iterator[Look]:
    """Forty messages a second, and a burst each seven; the link is cut five seconds before the end."""
    site = FifoSite(PAIR, "mixed", (QUEUE,))
    for number in range(round(DIED_S / STEP_S) + 1):
        now = number * STEP_S
        for _ in range(PACE // 20 + (60 if number % 140 == 0 else 0)):
            site.send(QUEUE, now)
        for _ in range(5):
            site.consume(QUEUE)
        for _ in range(PACE if now < DIED_S - 5 else 0):
            site.ship(("mixed", "*"))
        if number % 5 == 0:
            yield now, [role(now, "serving"), *site.look(now)]


def silent(begin_s: float, until_s: float, gaps: Iterable[tuple[float, float]] = ()) -> Iterator[Look]:
    """Looks at a site that is down: often at first, every 25 seconds later, which says the same in fewer rows."""
    now = begin_s
    while now <= until_s:
        if not any(begin < now < end for begin, end in gaps):
            yield now, [role(now, Role.DOWN.value)]
        now += 0.25 if now < begin_s + 90 else 25.0


class Recorder:
    """Writes looks as a monitor does; those of later hours a file each, all at once."""

    def __init__(self, folder: Path, clock: FixedClock) -> None:
        self._folder, self._clock = folder, clock
        self._writer = Writer(folder)
        self._is_down = False

    def take(self, looks: Iterable[Look]) -> None:
        later: dict[int, list[Row]] = defaultdict(list)
        for second, rows in looks:
            if second > DIED_S + 1000:
                later[int(second // 3600)] += rows
                continue
            self._clock.moment, self._clock.passed_s = at(second), second
            self._writer.add(rows)
            if rows[0].name == Role.DOWN.value and not self._is_down:
                self._is_down = True
                self._writer.flush()  # as where a site changes its role
        if later:
            self._writer.flush()
        for rows in later.values():
            write(rows, self._folder)

    def start_again(self) -> None:
        self._writer.flush()
        self._writer = Writer(self._folder)


def asked(folder: Path, second: float, **more: Any) -> Bounds:
    return bounds_of(folder, now=at(second), pairs=[PAIR], **more)


Change = Callable[[list[Look]], list[Look]]


def late_last_look(looks: list[Look]) -> list[Look]:
    return [*looks[:-1], answered(looks[-1], 0.9)]


def answered(look: Look, late_s: float) -> Look:
    second, rows = look[0] + late_s, look[1]
    took_ms = 10 + round(1000 * late_s)
    return second, [replace(row, ts=at(second), took_ms=took_ms if row.kind == "site" else None) for row in rows]


def moved(look: Look, by_s: float) -> list[Row]:
    return [replace(row, ts=row.ts + timedelta(seconds=by_s)) for row in look[1]]


def stamped_ahead(by_s: float) -> Change:
    return lambda looks: [(look[0], moved(look, by_s if 60 < look[0] < 70 else 0)) for look in looks]


def two_monitors(apart_s: float) -> Change:
    """A second one, whose clock is ahead by so much, looked too."""

    def change(looks: list[Look]) -> list[Look]:
        others = [(look[0] + 0.1, moved(look, 0.1 + apart_s)) for look in looks[:-1]]
        return sorted([*looks, *others], key=lambda look: look[0])

    return change


CHANGES: dict[str, Change] = {
    "files of a minute": list,
    "a last reading that was answered late": late_last_look,
    "looks that were answered late": lambda looks: [
        answered(each, 0.2 * (n % 17 == 0)) for n, each in enumerate(looks)
    ],
    "looks stamped twenty seconds ahead": stamped_ahead(20),
    "looks stamped an hour ahead": stamped_ahead(3700),
    "two monitors": two_monitors(0.0),
    "two monitors with clocks three seconds apart": two_monitors(-3.0),
}


def bounds_by_delay(
    folder: Path,
    change: Change = list,
    *,
    gaps: Iterable[tuple[float, float]] = (),
    joined: bool = False,
    restarted_at: float | None = None,
) -> dict[int, Bounds]:
    """What is answered each time, by one monitor that goes on looking."""
    recorder = Recorder(folder, FixedClock(at(0)))
    recorder.take(change([*lived()]))
    answers, looks = {}, silent(DIED_S + 1.2, DIED_S + DELAYS_S[-1], gaps)
    for delay_s in DELAYS_S:
        asked_s = DIED_S + delay_s
        if restarted_at is not None and asked_s > restarted_at:
            recorder.start_again()
            restarted_at = None
        recorder.take(_until(looks, asked_s))
        if joined:
            upkeep = Upkeep(HistoryLocation.at(folder), keep_s=10 * DAY_S)
            while upkeep.step(at(asked_s)):
                assert upkeep.trouble is None
        answers[delay_s] = asked(folder, asked_s)
    return answers


def _until(looks: Iterator[Look], moment_s: float) -> Iterator[Look]:
    """The next looks, one of them after that moment at most."""
    for look in looks:
        yield look
        if look[0] > moment_s - 25:
            return


def equal(answers: dict[int, Bounds]) -> Bounds:
    soon = answers[DELAYS_S[0]]
    assert soon.lost.at_most is not None
    assert document(answers) == dict.fromkeys(DELAYS_S, document(soon))
    return soon


@pytest.mark.parametrize(
    ("name", "joined"),
    [
        pytest.param(name, joined, marks=[] if joined == number % 2 and number < 4 else pytest.mark.deep)
        for number, name in enumerate(CHANGES)
        for joined in (False, True)
    ],
)
def test_the_bound_of_one_death_is_the_same_whenever_it_is_asked(tmp_path: Path, name: str, joined: bool) -> None:
    soon = equal(bounds_by_delay(tmp_path, CHANGES[name], joined=joined))

    lost = PACE * 5 + 120 - 10  # at least, of what was sent since the cut
    assert 0 < soon.lost.at_most < 4 * lost
    assert "waiting does not change this" in (soon.because or "")


def test_a_monitor_that_was_started_again_says_the_same(tmp_path: Path) -> None:
    gap = (DIED_S + 20, DIED_S + 40)

    equal(bounds_by_delay(tmp_path, gaps=[gap], joined=True, restarted_at=gap[1]))


@pytest.mark.deep
def test_after_a_time_in_which_the_monitors_machine_slept_the_site_may_have_been_back(tmp_path: Path) -> None:
    """The bound grew while nobody looked, that is said, and it grows no more."""
    asleep = (DIED_S + 400, DIED_S + 1400)

    answers = bounds_by_delay(tmp_path, gaps=[asleep], joined=True)

    at_most = {delay_s: answer.lost.at_most or 0 for delay_s, answer in answers.items()}
    assert at_most[5] == at_most[65] == at_most[300]
    assert at_most[3600] == at_most[43_200] == at_most[259_200] > at_most[300] + 1000 * PACE
    assert [finding.id for finding in answers[3600].findings if finding.id == "DR-RPO-030"] == ["DR-RPO-030"]
    assert "waiting does not change this" in (answers[259_200].because or "")


@pytest.mark.deep
def test_where_no_monitor_has_looked_since_the_bound_grows_and_says_so(tmp_path: Path) -> None:
    Recorder(tmp_path, FixedClock(at(0))).take(lived())

    answers = {delay_s: asked(tmp_path, DIED_S + delay_s, down_at=at(DIED_S + delay_s)) for delay_s in DELAYS_S}

    at_most = [answer.lost.at_most or 0 for answer in answers.values()]
    assert at_most == sorted(set(at_most))
    for answer in answers.values():
        assert "it grows by up to" in (answer.because or "")
        assert "until a monitor reads it again" in (answer.because or "")
        assert "DR-RPO-030" in [finding.id for finding in answer.findings]


@pytest.mark.parametrize("most", [1000, *(pytest.param(number, marks=pytest.mark.deep) for number in (450, 20_000))])
def test_with_an_end_by_the_moment_that_is_told_the_loss_is_within_what_is_allowed(tmp_path: Path, most: int) -> None:
    Recorder(tmp_path, FixedClock(at(0))).take(lived())
    now_s = DIED_S + 43_200

    ended = latest_end(HistoryLocation.at(tmp_path), LostSite(site="london", now=at(now_s), pairs=[PAIR]), most)

    ends = ended, ended + timedelta(seconds=0.2)
    then, later = (asked(tmp_path, now_s, silent_since=end).lost.at_most for end in ends)
    assert then <= most < later


@pytest.mark.deep
def test_where_more_lay_there_than_is_allowed_no_moment_is_told(tmp_path: Path) -> None:
    Recorder(tmp_path, FixedClock(at(0))).take(lived())

    for pairs, most in (([PAIR], 10), ([PAIR, "orders-2"], 10**6)):
        dead = LostSite(site="london", now=at(DIED_S + 600), pairs=pairs)
        assert latest_end(HistoryLocation.at(tmp_path), dead, most) is None


PAIR, QUEUE, OUTFLOW = "orders-1", "orders", ("mixed", "*")
STEP_S, NEAR_S, RATE = 0.05, 0.25, 60
BATCH = 2000


def steady(now: float) -> int:
    return round(RATE * STEP_S)


def with_a_batch(begin_s: float) -> Callable[[float], int]:
    return lambda now: steady(now) + BATCH * (begin_s <= now < begin_s + STEP_S / 2)


def unseen(
    folder: Path,
    gap: tuple[float, float],
    died_s: float,
    sent: Callable[[float], int] = steady,
    *,
    took_ms: int = 9,
    down_after_s: float = 0.2,
) -> FifoSite:
    """A site in step with its peer, which nobody looks at within the gap; the look after it waited so long."""
    site, rows = FifoSite(PAIR, "mixed", (QUEUE,)), list[Row]()
    for number in range(round(died_s / STEP_S) + 1):
        now = number * STEP_S
        for _ in range(sent(now)):
            site.send(QUEUE, now)
        for _ in range(2 * RATE):
            site.consume(QUEUE)
        if number % round(NEAR_S / STEP_S) == 0 and not gap[0] < now < gap[1]:
            late = took_ms if gap[1] <= now < gap[1] + NEAR_S else 9
            role = Row(site="london", ts=at(now), pair=PAIR, kind="site", name="serving", took_ms=late)
            rows += [*site.look(now), role]
        while site.outflows[OUTFLOW]:
            site.ship(OUTFLOW)
    down = Row(site="london", ts=at(died_s + down_after_s), pair=PAIR, kind="site", name="down", took_ms=1)
    write([*rows, down], folder)
    return site


def most_lost(folder: Path, died_s: float, **more: Any) -> int:
    found = bounds_of(folder, now=at(died_s + 1), **more)
    assert found.lost.at_most is not None
    assert found.duplicates.at_most is not None
    return found.lost.at_most


def later(now: float) -> int:
    return steady(now) * (now > 20)


def faster(now: float) -> int:
    return steady(now) + (70 <= now < 112)


GAPS: dict[str, tuple[tuple[float, float], float, Callable[[float], int], int, float, float]] = {
    **{f"{lasts_s} s, {ago_s} s ago": ((70, 70 + lasts_s), 70 + lasts_s + ago_s, steady, 9, 0, 1.5 * RATE)
       for lasts_s, ago_s in ((1.5, 540), (31, 60), (115, 10), (900, 60))},
    "a pace that wandered meanwhile": ((70, 112), 130, faster, 9, 0, 1.5 * (RATE + 1 / STEP_S)),
    # As where a monitor is started again after a move.
    "a service that came in it and was seen for seconds": ((15, 43), 47, later, 9, 0, 1.5 * RATE),
    # What a late answer counted is of any moment of that time.
    "and a reading that waited long for its answer": ((70, 100), 120, steady, 29_000, 0, 1.5 * RATE),
    # Readings around show no such batch: it may come again.
    "a batch in it, beyond all that was seen": ((70, 101), 160, with_a_batch(85), 9, BATCH, BATCH + 3 * RATE),
    "where too little was seen all of it may have come at once": ((5, 36), 40, steady, 9, 30 * RATE, 1e9),
}  # fmt: skip


@pytest.mark.parametrize("name", GAPS)
def test_after_a_gap_the_bound_is_near_the_truth(tmp_path: Path, name: str) -> None:
    gap, died_s, sent, took_ms, least, most = GAPS[name]
    site = unseen(tmp_path, gap, died_s, sent, took_ms=took_ms)

    at_most = most_lost(tmp_path, died_s)

    because = bounds_of(tmp_path, now=at(died_s + 1)).because or ""
    lost = site.truth(died_s).loss
    assert ("(assuming that all messages of a gap came at once: no reading for 31 s from" in because) is (least > 0)
    assert max(lost, least) <= at_most <= 2 * lost + most


def test_a_word_on_the_end_of_the_service_shortens_the_time_after_a_gap_too(tmp_path: Path) -> None:
    unseen(tmp_path, (70, 101), 130, down_after_s=0.9)

    assert most_lost(tmp_path, 130, silent_since=at(130)) < most_lost(tmp_path, 130)
