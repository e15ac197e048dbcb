"""One death has one bound, however late it is asked for and however its looks lie in files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.upkeep import Upkeep
from tests.rpo.fifo import at
from tests.rpo.test_bounds_near import PAIR, Life, received, site_row

DIED_S = 603.0
LAST_READ_S = 600.0
SEEN_DOWN_S = 605
EVERY_S = 10
ASKED_S = (5, 65, 300, 3600, 43_200)
"""So long after the death the bound is asked for."""
NO_GAP = (0, 0)


def served() -> Iterator[Row]:
    """London up to its last look, three seconds before its death; paris waits and receives what is sent."""
    yield from (row for row in Life("steady", 0, 10_000.0, DIED_S).rows() if row.ts <= at(LAST_READ_S))
    for second in range(0, int(DIED_S), EVERY_S):
        yield from received(second, 40 * second)


def silent(seconds: Iterable[int]) -> Iterator[Row]:
    for second in seconds:
        yield site_row(second, "down")
        yield from received(second, 40 * int(LAST_READ_S + 2))


def write_by_minute(rows: Iterable[Row], folder: Path) -> None:
    """A file a minute, and after two hours one an hour: seven hundred files more would say nothing else."""
    in_order = sorted(rows, key=lambda row: row.ts)
    for _, part in itertools.groupby(in_order, lambda row: row.ts.replace(second=0, microsecond=0, **_hourly(row))):
        write(part, folder)


def _hourly(row: Row) -> dict[str, int]:
    return {} if row.ts < at(7200) else {"minute": 0}


def bounds_by_delay(folder: Path, *, gap_s: tuple[int, int], joined: bool) -> dict[int, Bounds]:
    """What is answered each time; between the moments of `gap_s` no monitor ran."""
    write_by_minute(served(), folder)
    answers, looked_at = {}, SEEN_DOWN_S
    for delay_s in ASKED_S:
        asked_at = int(DIED_S) + delay_s
        looks = range(looked_at, asked_at + 1, EVERY_S)
        write_by_minute(silent(second for second in looks if not gap_s[0] < second < gap_s[1]), folder)
        looked_at = looks[-1] + EVERY_S if looks else looked_at
        upkeep = Upkeep(folder, keep_s=864_000)
        while joined and upkeep.step(at(asked_at)):
            assert upkeep.trouble is None
        answers[delay_s] = bounds(folder, site="london", now=at(asked_at), pairs=[PAIR], survivor="paris")
    return answers


@pytest.mark.parametrize(
    ("gap_s", "joined"),
    [(NO_GAP, False), (NO_GAP, True), ((SEEN_DOWN_S + 20, SEEN_DOWN_S + 40), False)],
    ids=["files of a minute", "joined hours", "a monitor that was started again"],
)
def test_the_bound_of_one_death_is_the_same_whenever_it_is_asked(
    tmp_path: Path, gap_s: tuple[int, int], joined: bool
) -> None:
    answers = bounds_by_delay(tmp_path, gap_s=gap_s, joined=joined)

    soon = answers[ASKED_S[0]]
    assert soon.lost.at_most == 120
    assert "less 80 that the other site received since" in (soon.because or "")
    assert {delay_s: each.as_json() for delay_s, each in answers.items()} == dict.fromkeys(ASKED_S, soon.as_json())


def test_a_gap_in_which_the_site_may_have_been_back_counts_and_what_follows_it_does_not(tmp_path: Path) -> None:
    answers = bounds_by_delay(tmp_path, gap_s=(SEEN_DOWN_S + 400, SEEN_DOWN_S + 500), joined=True)

    at_most = {delay_s: each.lost.at_most for delay_s, each in answers.items()}
    later = 40 * (SEEN_DOWN_S + 500 - int(LAST_READ_S)) - 80
    assert at_most == {5: 120, 65: 120, 300: 120, 3600: later, 43_200: later}
