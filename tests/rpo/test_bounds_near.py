"""The bound by looks at everything several times a second, or at the outflow alone and at the queues every five."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import FifoSite, at

PAIR, QUEUE, OUTFLOW = "orders-1", "orders", ("mixed", "*")
STEP_S, NEAR_S, RATE = 0.05, 0.25, 40


def site_row(second: float, role: str, site: str = "london") -> Row:
    return Row(site=site, ts=at(second), pair=PAIR, kind="site", name=role, took_ms=0)


def test_a_link_that_is_cut_just_after_the_queues_were_read_has_a_likely_figure(tmp_path: Path) -> None:
    """What lay in the outflow then, one or two in step, says nothing of what it is made of now."""
    site, rows, died_s = FifoSite(PAIR, "mixed", (QUEUE,)), list[Row](), 24.0
    for number in range(round(died_s / STEP_S) + 1):
        now = number * STEP_S
        for _ in range(2):
            site.send(QUEUE, now)
        for _ in range((number % 20 in (0, 7, 14)) * RATE // 5):
            site.consume(QUEUE)
        for _ in range(RATE if now < died_s - 3.9 else 0):
            site.ship(OUTFLOW)
        if number % 5 == 0:
            rows += [row for row in site.look(now) if row.kind != "queue" or number % 100 == 0]
            rows.append(site_row(now, "serving"))
    write([*rows, site_row(died_s + 0.2, "down")], tmp_path)

    found = bounds(tmp_path, site="london", now=at(died_s + 1))

    truth = site.truth(died_s)
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
