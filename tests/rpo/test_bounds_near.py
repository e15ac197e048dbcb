"""What is likely by looks at the outflow several times a second, and at the queues every five."""

from pathlib import Path

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import FifoSite, at

PAIR, QUEUE, OUTFLOW = "orders-1", "orders", ("mixed", "*")
STEP_S, RATE = 0.05, 40


def site_row(second: float, role: str) -> Row:
    return Row(site="london", ts=at(second), pair=PAIR, kind="site", name=role, took_ms=0)


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
