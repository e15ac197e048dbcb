"""What lost acknowledgements have left at the other site counts among what comes twice."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.bounds.pair import LOOKS
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import at

LEFT = 40


def look(second: float, *, there: int | None = 40, role: str = "serving", depth: int = 0) -> list[Row]:
    """A site that sends and acknowledges ten a second, all of it shipped; `there` lies at the other one."""
    sent = int(second * 10)
    of = Row(site="london", ts=at(second), pair="orders-1", kind="queue", name="orders", start="1", delivering=0)
    queue = replace(of, depth=depth, added=sent, acked=sent, removed=sent)
    shipped = replace(of, depth=0, added=sent, removed=sent)
    rows = [
        Row(site="london", ts=at(second), pair="orders-1", kind="site", name=role, took_ms=0),
        queue,
        replace(shipped, kind="mirror"),
        replace(shipped, kind="acks"),
    ]
    return rows if there is None else [*rows, replace(of, kind="staged", depth=there)]


def asked(folder: Path, seconds: float) -> Bounds:
    return bounds(folder, site="london", now=at(seconds))


def finding(found: Bounds, id_: str) -> list[str]:
    return [each.text for each in found.findings if each.id == id_]


def test_what_they_have_left_comes_twice_beside_what_is_on_its_way(tmp_path: Path) -> None:
    write([row for second in range(0, 15, 5) for row in look(second, there=LEFT + 7, depth=7)], tmp_path)

    found = asked(tmp_path, 10)

    assert found.duplicates.at_most == LEFT
    assert [each.duplicates for each in found.queues] == [LEFT]
    assert found.lost.at_most == 0
    assert asked(tmp_path, 11).duplicates.at_most == LEFT + 100  # as many as from look to look
    assert "orders: 40" in finding(found, "DR-RPO-022")[0]


def looks(times: range, **more: Any) -> list[Row]:
    return [row for second in times for row in look(second, **more)]


# Of the most of the last looks none of before counts: two sites are not read at quite the same instant.
DEPTHS = [9000, LEFT + 3, *[LEFT] * (LOOKS - 1)]
LAST = [row for number, depth in enumerate(DEPTHS) for row in look(5 * number, there=depth)]


@pytest.mark.parametrize(
    ("rows", "now_s", "most"),
    [
        *(
            ([*looks(range(0, 15, 5)), *looks(range(15, 15 + 5 * silent, 5), there=None)], 10 + 5 * silent, 50 * silent)
            for silent in range(1, 4)
        ),
        ([*looks(range(0, 15, 5), there=9000, role="standby"), *looks(range(15, 30, 5))], 25, 0),
        (LAST, 5 * (len(DEPTHS) - 1), 3),
    ],
    ids=["once", "twice", "silent: all that was acknowledged since", "did not serve", "the last looks"],
)
def test_what_lies_at_the_other_site_is_that_of_its_last_looks(
    tmp_path: Path, rows: list[Row], now_s: float, most: int
) -> None:
    write(rows, tmp_path)

    assert asked(tmp_path, now_s).duplicates.at_most == LEFT + most


def test_what_was_never_read_is_said_and_is_no_zero_also_where_queues_were_not_read(tmp_path: Path) -> None:
    write(looks(range(0, 15, 5), there=None), tmp_path / "staged")
    write([row for row in looks(range(0, 15, 5)) if row.kind != "queue"], tmp_path / "queues")
    found, other = asked(tmp_path / "staged", 10), asked(tmp_path / "queues", 11)

    assert "orders" in finding(found, "DR-RPO-021")[0]
    assert finding(found, "DR-RPO-022") == []
    assert "was not read beside it: orders" in finding(other, "DR-RPO-021")[0]
