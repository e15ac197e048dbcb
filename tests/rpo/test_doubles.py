"""The limit on what a failover may deliver a second time."""

from typing import Literal

import pytest

from dr_ctl.rpo.bounds.result import Bound, Bounds
from dr_ctl.rpo.estimate.result import Objectives


def bounds(duplicates: int | None, likely: int | None = None) -> Bounds:
    return Bounds("london", Bound(0, None), Bound(duplicates, None, likely))


@pytest.mark.parametrize(
    ("duplicates", "objective", "accept", "why"),
    [
        # Without a limit they are accepted by name, as a loss is.
        (4100, None, None, "up to 4100 duplicate(s) are possible, likely 80; no objective allows any"),
        (0, None, None, None),
        (4100, 4100, None, None),
        (4100, 300, 4100, None),  # a person's word replaces the objective
        # `unknown` accepts what is not known, and no figure that is.
        (4100, 300, "unknown", "up to 4100 duplicate(s) are possible, likely 80; the objectives allow 300"),
        (4100, None, "unknown", "up to 4100 duplicate(s) are possible, likely 80; no objective allows any"),
        (None, None, None, "how many duplicates are possible is not known"),
        (None, None, "unknown", None),
        (4100, 300, None, "up to 4100 duplicate(s) are possible, likely 80; the objectives allow 300"),
        (4100, None, 300, "up to 4100 duplicate(s) are possible, likely 80; 300 are accepted"),
        (4100, 5000, 300, "up to 4100 duplicate(s) are possible, likely 80; 300 are accepted"),
        (None, 300, None, "how many duplicates are possible is not known; a limit of 300 does not cover the unknown"),
    ],
)
def test_above_the_limit_is_refused(
    duplicates: int | None, objective: int | None, accept: int | Literal["unknown"] | None, why: str | None
) -> None:
    limits = Objectives(duplicates=objective) if objective is not None else None

    assert bounds(duplicates, 80 if duplicates is not None else None).doubles(limits, accept) == why
