"""Random lives of every kind of link: no bound lies below the truth, and most lie near it, also after a monitor that
was late or started again, a move and a failover."""

from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from tests.rpo.lives import AGO_S, EVENTS, LINKS, Event, Judged, Life, Link

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

    assert {each.life.seed: each.below for each in lives if each.below} == {}
    assert all(each.is_known for each in lives)
    width, likely = [each.width for each in lives], np.mean([each.is_likely for each in lives])
    print(link, np.quantile(width, [0.5, 0.9]), likely)
    assert np.median(width) <= WIDE or count < 100
    assert likely >= LIKELY or count < 100


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    "count",
    [1, pytest.param(3, marks=pytest.mark.deep), pytest.param(60, marks=pytest.mark.chaos)],
    ids=["one", "some", "sixty"],
)
def test_no_life_loses_more_than_was_said_after_what_befell_monitor_or_service(
    tmp_path: Path, link: Link, event: Event, count: int
) -> None:
    place = (LINKS.index(link) + EVENTS.index(event)) % len(AGO_S)
    whens = [*zip(range(count), cycle(AGO_S[place:] + AGO_S[:place]), strict=False)]
    after = [Judged.of(Life(link, seed, event, ago_s), tmp_path / f"{seed}") for seed, ago_s in whens]

    assert {each.life.seed: each.below for each in after if each.below} == {}
    assert all(each.is_known for each in after)
    print(link, event, *np.quantile([each.width for each in after], [0.5, 0.9, 1]).round(2))
    if event in ("restart", "late") and count > 1:
        without = [Judged.of(Life(link, seed, None, ago_s), tmp_path / f"{seed}-without") for seed, ago_s in whens]
        print(link, "without", *np.quantile([each.width for each in without], [0.5, 0.9, 1]).round(2))
        both = zip(
            (each.bounds.lost.at_most or 0 for each in after),
            (each.bounds.lost.at_most or 0 for each in without),
            strict=True,
        )
        assert np.median([one / max(1, other) for one, other in both]) <= WIDER
