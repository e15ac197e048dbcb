"""Random lives of every kind of link: no bound lies below the truth, and most lie near it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.rpo.lives import LINKS, Judged, Life, Link

FEW, MANY = 40, 10_000
WIDE, LIKELY = 2.0, 0.95


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
