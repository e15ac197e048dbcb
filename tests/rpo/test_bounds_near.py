"""The bound by looks at everything several times a second, or at the outflow alone and at the queues every five."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import FifoSite, at

PAIR, QUEUE, OUTFLOW = "orders-1", "orders", ("mixed", "*")
STEP_S, NEAR_S, FULL = 0.05, 0.25, 20
RATE = 40
DIES_S = 24.0


def site_row(second: float, role: str, site: str = "london") -> Row:
    return Row(site=site, ts=at(second), pair=PAIR, kind="site", name=role, took_ms=0)


@dataclass
class Life:
    """A site step by step: how many are sent and may be consumed in each, and when the link is cut."""

    load: str
    seed: int
    cut_s: float
    died_s: float
    full: int = 1  # every so many looks read the queues

    def __post_init__(self) -> None:
        self.site = FifoSite(PAIR, "mixed", (QUEUE,))
        self.chance = random.Random(f"{self.load} {self.seed}")

    def rows(self) -> Iterator[Row]:
        paused_until = 0.0
        for number in range(round(self.died_s / STEP_S) + 1):
            now = number * STEP_S
            for _ in range(self.sent(number)):
                self.site.send(QUEUE, now)
            if self.load == "pauses" and self.chance.random() < STEP_S / 4:
                paused_until = now + self.chance.uniform(0, 1.5)
            able = (number % 20 in (0, 7, 14)) * RATE // 5 if self.load == "slow" else 3 * RATE // 20
            for _ in range(able if now >= paused_until else 0):
                self.site.consume(QUEUE)
            for _ in range(RATE if now < self.cut_s else 0):
                self.site.ship(OUTFLOW)
            if number % round(NEAR_S / STEP_S) == 0:
                looked, is_full = self.site.look(now), number % round(self.full * NEAR_S / STEP_S) == 0
                yield from (row for row in looked if row.kind != "queue" or is_full)
                yield site_row(now, "serving")

    def sent(self, number: int) -> int:
        per_s = round(1 / STEP_S)
        if self.load == "batches":
            return RATE if number % per_s == self.seed % per_s else 0
        if self.load == "waves":
            return 2 * RATE // per_s if number // (3 * per_s) % 2 else 0
        if self.load == "gusts":
            return 5 * RATE if (number + 7 * self.seed) % (5 * per_s) == 0 else 0
        return RATE // per_s

    @property
    def lost(self) -> int:
        return self.site.truth(self.died_s).loss


def judged(life: Life, folder: Path) -> Bounds:
    rows = list(life.rows())
    write([*rows, site_row(life.died_s + 0.2, "down")], folder)
    return bounds(folder, site="london", now=at(life.died_s + 1))


@pytest.mark.parametrize("cut_s", [DIES_S - 3, 100.0], ids=["3 s behind", "in step"])
@pytest.mark.parametrize("load", ["steady", "pauses", "batches", "waves", "gusts"])
def test_no_burst_is_above_the_bound(tmp_path: Path, load: str, cut_s: float) -> None:
    for seed in range(8):
        life = Life(load, seed, cut_s, DIES_S + seed * 0.35)

        found = judged(life, tmp_path / str(seed))

        assert found.lost.at_most is not None
        assert life.lost <= found.lost.at_most, seed
        if load == "steady":
            assert found.lost.at_most <= 2 * (life.lost + RATE)
            assert found.lost.likely is not None
            assert abs(found.lost.likely - life.lost) <= max(life.lost, RATE) / 2


def test_a_link_that_is_cut_just_after_the_queues_were_read_has_a_likely_figure(tmp_path: Path) -> None:
    """What lay in the outflow then, one or two in step, says nothing of what it is made of now."""
    life = Life("slow", 0, DIES_S - 3.9, DIES_S, FULL)

    found = judged(life, tmp_path)

    truth = life.site.truth(DIES_S)
    assert (truth.loss, truth.duplicates) == (158, 96)
    assert (found.lost.likely, found.duplicates.likely) == (pytest.approx(158, abs=10), pytest.approx(96, abs=10))


GUST, GUST_STEPS, ROUND_STEPS = 200, 4, 100
"""So many messages are sent within so many steps of each round of five seconds."""
OTHER = "invoices"


def gusty(folder: Path, *, drained_until_s: float, died_s: float, cut_s: float) -> FifoSite:
    """A site whose consumers work off a backlog up to a moment, and then see gusts between the looks at queues, which
    they consume within five seconds. Looks are made until its link is cut."""
    site = FifoSite(PAIR, "mixed", (QUEUE, OTHER))
    rows: list[Row] = []
    for _ in range(int(drained_until_s * 400)):
        site.send(QUEUE, 0)
    for number in range(round(died_s / STEP_S) + 1):
        now, is_draining, phase = number * STEP_S, number * STEP_S < drained_until_s, number % ROUND_STEPS
        for _ in range(GUST // GUST_STEPS if not is_draining and 40 <= phase < 40 + GUST_STEPS else 0):
            site.send(QUEUE, now)
        for _ in range(20 if is_draining else GUST // ROUND_STEPS):
            site.consume(QUEUE)
        site.send(OTHER, now)
        site.consume(OTHER)
        if now >= cut_s:
            continue
        for _ in range(10_000):
            site.ship(OUTFLOW)
        if number % round(NEAR_S / STEP_S) == 0:
            is_full = phase == 0
            rows += [row for row in site.look(now) if row.kind != "queue" or is_full]
            rows.append(site_row(now, "serving"))
    write([*rows, site_row(died_s + 0.2, "down")], folder)
    return site


@pytest.mark.parametrize("drained_until_s", [0.0, 20.0], ids=["", "after a backlog was worked off"])
def test_a_gust_between_two_looks_at_queues_is_within_every_bound(tmp_path: Path, drained_until_s: float) -> None:
    """Consumers that worked off a backlog before were faster than the gusts, and hide none of them."""
    died_s = 72.15
    site = gusty(tmp_path, drained_until_s=drained_until_s, died_s=died_s, cut_s=71.99)
    limit = Objectives(LossLimit(10**6), (LossClass((QUEUE,), LossLimit(0)),))

    found = bounds(tmp_path, site="london", now=at(died_s + 1), objectives=limit)

    lost = site.truth(died_s).loss
    assert lost >= GUST - 10
    assert found.lost.at_most is not None
    assert lost <= found.lost.at_most <= 5 * GUST
    [of_queue] = [each.lost for each in found.queues if each.name == QUEUE]
    [of_class] = [each.lost for each in found.classes]
    assert of_queue is not None
    assert GUST - 10 <= of_queue == of_class
