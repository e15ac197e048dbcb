"""Random lives of every kind of link: no bound lies below the truth, and most lie near it, also after a monitor that
was late or started again, a move and a failover."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from tests.rpo.lives import AGO_S, EVENTS, LINKS, Event, Judged, Life, Link

FEW, MANY = 40, 10_000
FEW_AFTER, MANY_AFTER = 3, 60
WIDE, LIKELY = 2.0, 0.95
WIDER = 1.25
"""So many times as wide at most is the median bound beside that of a monitor that was never late."""


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.chaos)], ids=["some", "ten thousand"])
def test_no_life_loses_more_than_was_said(tmp_path: Path, link: Link, count: int) -> None:
    lives = [Judged.of(Life(link, seed), tmp_path / str(seed)) for seed in range(count)]

    assert {each.life.seed: each.below for each in lives if each.below} == {}
    assert all(each.is_known for each in lives)
    if count == MANY:
        print(
            link, np.quantile([each.width for each in lives], [0.5, 0.9]), np.mean([each.is_likely for each in lives])
        )
        assert np.median([each.width for each in lives]) <= WIDE
        assert np.mean([each.is_likely for each in lives]) >= LIKELY


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("count", [FEW_AFTER, pytest.param(MANY_AFTER, marks=pytest.mark.chaos)], ids=["some", "sixty"])
def test_no_life_loses_more_than_was_said_after_what_befell_monitor_or_service(
    tmp_path: Path, link: Link, event: Event, count: int
) -> None:
    after, without = (
        [
            Judged.of(Life(link, seed, each, ago_s), tmp_path / f"{seed}-{each}")
            for seed, ago_s in zip(range(count), cycle(AGO_S), strict=False)
        ]
        for each in (event, None)
    )

    assert {each.life.seed: each.below for each in after if each.below} == {}
    assert all(each.is_known for each in after)
    if event in ("restart", "late"):
        wider = [
            (one.bounds.lost.at_most or 0) / max(1, other.bounds.lost.at_most or 0)
            for one, other in zip(after, without, strict=True)
        ]
        assert np.median(wider) <= WIDER
    if count == MANY_AFTER:
        for name, judged in ((event, after), ("without", without)):
            print(link, name, *np.quantile([each.width for each in judged], [0.5, 0.9, 1]).round(2))
