"""No bound lies below the truth, and most lie near it, in random lives for every kind of link: what clients send and
acknowledge, what the link ships, when a monitor looks and how late it is answered, what befell monitor or service a
while before, and the death at any moment.

Loads are periodic and never get faster, for that is what bounds assume; everything else may happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pytest

from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.rpo.history.files import SCHEMA, write_table
from tests.rpo.fifo import EPOCH, at
from tests.rpo.files import bounds_of
from tests.rpo.simulator import Ints, Link, Traffic

Event = Literal["restart", "late", "move", "failover"]
EVENTS: Final[tuple[Event, ...]] = ("restart", "late", "move", "failover")
"""The monitor was started again, or looked late some times; or the service came here, planned or as the other site was
lost, whose link is away since."""
AGO_S: Final = (10.0, 60.0, 540.0)
"""So long before the death it was over."""
LINKS: Final[tuple[Link, ...]] = ("mirror", "brokersync", "continuity", "bridges")
STEP_S: Final = 0.05
LASTS_S: Final = 240.0
WHOLE_EVERY_S: Final = 5.0
MINUTE_S: Final = 60.0
SEEN_DOWN_S: Final = 0.25
MANY: Final = 10**7


@dataclass(frozen=True)
class Look:
    """Asked and answered then, and read at steps between; `whole` reads queues too."""

    asked_s: float
    ts_s: float
    outflow: int
    queues: int
    whole: bool


@dataclass
class Life:
    """A site from its first reading to its end, and what was seen of it. `event`: what befell it so many seconds before
    its death (`ago_s`)."""

    link: Link
    seed: int
    event: Event | None = None
    ago_s: float = 0.0

    def __post_init__(self) -> None:
        self.dice = np.random.default_rng([LINKS.index(self.link), self.seed])
        steps = round((LASTS_S + self.ago_s) / STEP_S)
        self.died = int(self.dice.integers(round(0.75 * LASTS_S / STEP_S), round(LASTS_S / STEP_S - 1 / STEP_S)))
        self.restarted = int(self.dice.integers(0, self.died)) if self.dice.random() < 0.15 else 0
        cut_s = float(self.dice.choice([0.0, 0.0, 0.3, 1.0, 3.0, 10.0, 90.0])) * self.dice.random()
        self.over_s = self.died * STEP_S
        self.died += round(self.ago_s / STEP_S)
        self.cut = self.died - round(cut_s / STEP_S) if cut_s else steps
        self.came = round(self.over_s / STEP_S) if self.event in ("move", "failover") else 0
        # Clients that came are seen some rounds long: what they do was done before.
        self.round_s = self.ago_s / 3 if self.came else 30.0
        if self.event == "failover":
            self.cut = self.came
        self.gaps = self._gaps()
        self.pairs = [self._traffic(steps) for _ in range(1 + int(self.dice.random() < 0.2))]
        self.looks = self._looks()

    def _gaps(self) -> list[tuple[float, float]]:
        """The times in which nobody looked, but at the end of each. By dice of their own: the traffic is that of the
        life without them."""
        dice = np.random.default_rng([LINKS.index(self.link), self.seed, 1])
        if self.event == "restart":
            return [(self.over_s - float(dice.choice([3.0, 12.0, 40.0, 120.0])), self.over_s)]
        gaps, end_s = [], self.over_s
        for _ in range(int(dice.integers(1, 4)) if self.event == "late" else 0):
            begin_s = end_s - dice.uniform(25, 35)
            gaps.append((begin_s, end_s))
            end_s = begin_s - dice.uniform(0.1, 3)
        return gaps[::-1]

    def _traffic(self, steps: int) -> Traffic:
        count = int(self.dice.integers(1, 4))
        sends, able = (np.zeros((steps, count), np.int64) for _ in range(2))
        for queue in range(count):
            sends[:, queue] = self._sends(steps)
            able[:, queue] = self._able(steps, sends[:, queue])
        sends[: self.came] = 0
        # Who has no link any more goes on; who has no consumer either sees the backlog grow.
        if self.dice.random() < 0.3:
            slow = max(0, self.died - round(self.dice.uniform(0, 5) / STEP_S))
            able[slow:] = able[slow:] // int(self.dice.choice([3, 10, MANY]))
        ships = np.full(steps, MANY)
        if self.dice.random() < 0.25:  # hardly as fast as what comes
            put = sends.sum() * 2 / steps
            ships[:] = np.diff(np.floor(np.arange(steps + 1) * put * self.dice.uniform(0.9, 1.5))).astype(np.int64)
        ships[self.cut :] = 0
        return Traffic.of(self.link, sends, able, ships, STEP_S)

    def _sends(self, steps: int) -> Ints:
        per_s, period_s = int(self.dice.integers(10, 400)), float(self.dice.choice([0.7, 1, 2, 3, 5, 7, 10, 12]))
        period_s = min(period_s, self.round_s)
        phase = (np.arange(steps) * STEP_S + self.dice.uniform(0, period_s)) % period_s
        kind = self.dice.choice(["even", "ragged", "waves", "bursts"], p=[0.35, 0.3, 0.2, 0.15])
        even = np.diff(np.floor(np.arange(steps + 1) * per_s * STEP_S)).astype(np.int64)
        if kind == "bursts":
            lasts_s = float(self.dice.choice([0.05, 0.2, 0.5, 1.0]))
            return np.where(phase < lasts_s, max(1, round(per_s * period_s * STEP_S / max(lasts_s, STEP_S))), 0)
        if kind == "waves":
            return np.where(phase < period_s / 2, 2 * even, 0)
        if kind == "ragged":  # the same half minute again and again
            part = self.dice.poisson(per_s * STEP_S, round(min(30, self.round_s) / STEP_S))
            return np.resize(part, steps).astype(np.int64)
        return even

    def _able(self, steps: int, sends: Ints) -> Ints:
        usual = int(np.ceil(sends.mean()))
        kind = self.dice.choice(["at once", "even", "in batches", "drained", "none"], p=[0.35, 0.25, 0.15, 0.15, 0.1])
        if kind == "even":
            return np.full(steps, usual)
        if kind == "in batches":
            phase = (np.arange(steps) * STEP_S + self.dice.uniform(0, 5)) % min(
                self.round_s, self.dice.choice([0.5, 2.0, 5.0])
            )
            return np.where(phase < STEP_S, MANY, 0)
        if kind == "drained":
            begin, lasts = self.dice.uniform(20, 100), self.dice.uniform(10, 60)
            now = np.arange(steps) * STEP_S
            sends[0] += round(usual * lasts / STEP_S)
            return np.where((now > begin) & (now < begin + lasts), 3 * usual, usual)
        return np.full(steps, MANY if kind == "at once" else 0)

    def _looks(self) -> list[Look]:
        """As a monitor makes them, whose queues take more or less long, up to the last that was answered."""
        whole_s, near_s = [(0.25, 0.25), (0.35, 0.35), (0.35, 0.35), (1.0, 0.25), (5.0, 0.25), (5.0, 5.0)][
            int(self.dice.choice(6, p=[0.35, 0.25, 0.2, 0.1, 0.07, 0.03]))
        ]
        if self.link == "brokersync":
            near_s = whole_s
        usual_s = whole_s / 20
        looks, now, next_whole = list[Look](), 0.3 + self.dice.random() * near_s, 0.0
        died_s = self.died * STEP_S
        while now < died_s:
            is_whole = now >= next_whole - near_s / 2
            took_s = usual_s * self.dice.uniform(0.5, 1.5) if is_whole else 0.01
            late = self.dice.random() < (0.3 if now + near_s > died_s else 0.01)
            took_s = self.dice.uniform(took_s, 0.95) if late else took_s
            last = max(now, min(now + took_s, died_s - 0.001))
            outflow, queues = sorted(int(self.dice.uniform(now, last) / STEP_S) for _ in range(2))
            outflow = max(outflow, int(np.ceil(now / STEP_S - 1e-9)))
            outflow, queues = min(outflow, self.died), min(max(outflow, queues), self.died)
            is_answered = now + took_s < died_s or self.dice.random() < 0.5
            if is_answered:
                looks.append(Look(now, now + took_s, outflow, queues, bool(is_whole)))
            next_whole = now + whole_s if is_whole else next_whole
            now = max(now + near_s * self.dice.uniform(0.95, 1.1), now + took_s)
            now = next((end for begin, end in self.gaps if begin < now < end), now)
        return looks

    @property
    def seen_down_s(self) -> float:
        return max(self.died * STEP_S, self.looks[-1].ts_s) + float(self.dice.uniform(0.0, SEEN_DOWN_S)) + 0.001

    @property
    def per_s(self) -> float:
        """Messages a second of all queues, in the last half minute."""
        begin = self.died - round(30 / STEP_S)
        return sum(float(pair.sent[self.died].sum() - pair.sent[begin].sum()) for pair in self.pairs) / 30

    def table(self, down_s: float) -> pa.Table:
        """The rows as the files keep them: the last minute whole, before it a reading of queues each so often."""
        columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        kept_s, end_s = -1e9, self.looks[-1].ts_s

        def row(second: float, pair: str, **more: Any) -> None:
            values = {"ts": at(second), "pair": pair, "start": "1", "delivering": 0, "link": True, **more}
            for name, column in columns.items():
                column.append(values.get(name))

        for look in self.looks:
            is_kept = look.whole and (look.ts_s > end_s - MINUTE_S or look.ts_s - kept_s >= WHOLE_EVERY_S - 0.1)
            kept_s = look.ts_s if is_kept and look.ts_s - kept_s >= WHOLE_EVERY_S - 0.1 else kept_s
            for number, traffic in enumerate(self.pairs):
                self._rows_of(look, traffic, row, f"p{number}", is_kept=is_kept)
        for number in range(len(self.pairs)):
            row(down_s, f"p{number}", kind="site", name="down", took_ms=1, delivering=None, link=None)
        return pa.table(columns, SCHEMA)

    def _together(self, look: Look, traffic: Traffic, base: int) -> dict[str, int]:
        counts = ((name, getattr(traffic, of)) for name, of in (("queues_added", "sent"), ("queues_acked", "acked")))
        return {name: int(count[look.queues].sum() - (count[base].sum() if base else 0)) for name, count in counts}

    def _rows_of(self, look: Look, traffic: Traffic, row: Any, pair: str, *, is_kept: bool) -> None:
        start = "2" if look.outflow >= self.restarted and self.restarted else "1"
        base = self.restarted if start == "2" else 0
        took_ms = int(np.ceil((look.ts_s - look.asked_s) * 1000))
        role = "serving" if look.outflow >= self.came else "standby"
        row(look.ts_s, pair, kind="site", name=role, took_ms=took_ms, start=start, delivering=None, link=None)
        for (kind, name, parts), shipped in zip(traffic.flows, traffic.shipped, strict=True):
            put = traffic.put(parts)
            depth = int(put[look.outflow] - shipped[look.outflow])
            added = int(put[look.outflow] - (put[base] if base else 0))
            told = self._together(look, traffic, base) if kind == "mixed" and look.whole else {}
            counted = {"depth": depth, "added": added, "removed": added - depth, **told}
            row(look.ts_s, pair, kind=kind, name=name, start=start, **counted)
        for queue in range(traffic.sent.shape[1] if is_kept else 0):
            sent, acked = traffic.sent[:, queue], traffic.acked[:, queue]
            done = int(acked[look.queues] - (acked[base] if base else 0))
            added = int(sent[look.queues] - (sent[base] if base else 0))
            held = int(sent[look.queues] - acked[look.queues])
            row(look.ts_s, pair, kind="queue", name=f"q{queue}", depth=held, added=added, removed=done, acked=done,
                start=start, link=None)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    life: Life
    bounds: Bounds
    truths: list[list[Any]]
    lost: int
    duplicates: int

    @classmethod
    def of(cls, life: Life, folder: Path) -> Judged:
        down_s = life.seen_down_s
        write_table(life.table(down_s), (EPOCH.date(), "london"), folder)
        said = bounds_of(folder, now=at(down_s + 5))
        truths = [[of[0] for of in pair.truth(np.array([life.died]))] for pair in life.pairs]
        return cls(life, said, truths, *(sum(int(truth[of].sum()) for truth in truths) for of in (0, 1)))

    @property
    def below(self) -> list[str]:
        told: list[tuple[str, float, float | None]] = [
            ("lost", self.lost, self.bounds.lost.at_most),
            ("duplicates", self.duplicates, self.bounds.duplicates.at_most),
            ("age", max(truth[2] for truth in self.truths) - STEP_S, self.bounds.age_s),
        ]
        for queue in self.bounds.queues:
            place = int(queue.name[1:])
            own = [truth for truth in self.truths if place < len(truth[0])]
            for kind, number, said in (("lost", 0, queue.lost), ("duplicates", 1, queue.duplicates)):
                told.append((f"{queue.name} {kind}", sum(int(truth[number][place]) for truth in own), said))
        return [f"{what}: {was} of at most {said}" for what, was, said in told if said is not None and was > said]

    @property
    def is_known(self) -> bool:
        return self.bounds.lost.at_most is not None and self.bounds.duplicates.at_most is not None

    @property
    def width(self) -> float:
        return (self.bounds.lost.at_most or 0) / (self.lost + max(1.0, self.life.per_s))

    @property
    def is_likely(self) -> bool:
        likely = self.bounds.lost.likely
        return likely is not None and abs(likely - self.lost) <= max(self.lost, self.life.per_s, 2) / 2


WIDE, LIKELY = 2.0, 0.95
WIDER = 1.25
"""So many times as wide at most is the median bound beside that of a monitor that was never late."""


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    "count",
    [8, pytest.param(40, marks=pytest.mark.deep), pytest.param(10_000, marks=pytest.mark.chaos)],
    ids=["few", "some", "ten thousand"],
)
def test_no_life_loses_more_than_was_said(tmp_path: Path, link: Link, count: int) -> None:
    lives = [Judged.of(Life(link, seed), tmp_path / str(seed)) for seed in range(count)]

    assert {outcome.life.seed: outcome.below for outcome in lives if outcome.below} == {}
    assert all(outcome.is_known for outcome in lives)
    width, likely = [outcome.width for outcome in lives], np.mean([outcome.is_likely for outcome in lives])
    print(link, np.quantile(width, [0.5, 0.9]), likely)
    assert np.median(width) <= WIDE or count < 100
    assert likely >= LIKELY or count < 100


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    "count",
    [1, pytest.param(9, marks=pytest.mark.deep), pytest.param(60, marks=pytest.mark.chaos)],
    ids=["one", "some", "sixty"],
)
def test_no_life_loses_more_than_was_said_after_what_befell_monitor_or_service(
    tmp_path: Path, link: Link, event: Event, count: int
) -> None:
    place = (LINKS.index(link) + EVENTS.index(event)) % len(AGO_S)
    whens = [*zip(range(count), cycle(AGO_S[place:] + AGO_S[:place]), strict=False)]
    after = [Judged.of(Life(link, seed, event, ago_s), tmp_path / f"{seed}") for seed, ago_s in whens]

    assert {outcome.life.seed: outcome.below for outcome in after if outcome.below} == {}
    assert all(outcome.is_known for outcome in after)
    print(link, event, *np.quantile([outcome.width for outcome in after], [0.5, 0.9, 1]).round(2))
    if event in ("restart", "late") and count > 3:  # the median of three is any of them
        without = [Judged.of(Life(link, seed, None, ago_s), tmp_path / f"{seed}-without") for seed, ago_s in whens]
        print(link, "without", *np.quantile([outcome.width for outcome in without], [0.5, 0.9, 1]).round(2))
        both = zip(
            (outcome.bounds.lost.at_most or 0 for outcome in after),
            (outcome.bounds.lost.at_most or 0 for outcome in without),
            strict=True,
        )
        assert np.median([one / max(1, other) for one, other in both]) <= WIDER
