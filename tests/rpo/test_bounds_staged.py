"""What lost acknowledgements have left at the other site counts among what comes twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.rpo.bounds.staged import LOOKS
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


@pytest.mark.parametrize("unread", range(1, 4))
def test_where_the_other_site_was_silent_all_that_was_acknowledged_since_may_have_been_left(
    tmp_path: Path, unread: int
) -> None:
    silent = [row for second in range(15, 15 + 5 * unread, 5) for row in look(second, there=None)]
    write([*(row for second in range(0, 15, 5) for row in look(second)), *silent], tmp_path)

    assert asked(tmp_path, 10 + 5 * unread).duplicates.at_most == LEFT + 50 * unread


def test_a_time_at_which_the_site_did_not_serve_says_nothing_of_it(tmp_path: Path) -> None:
    standby = [row for second in range(0, 15, 5) for row in look(second, there=9000, role="standby")]
    write([*standby, *(row for second in range(15, 30, 5) for row in look(second))], tmp_path)

    assert asked(tmp_path, 25).duplicates.at_most == LEFT


def test_the_most_of_the_last_looks_counts_and_of_none_before(tmp_path: Path) -> None:
    """Two sites are not read at quite the same instant."""
    depths = [9000, LEFT + 3, *[LEFT] * (LOOKS - 1)]
    write([row for n, depth in enumerate(depths) for row in look(5 * n, there=depth, depth=0)], tmp_path)

    last_s = 5 * (len(depths) - 1)
    assert asked(tmp_path, last_s).duplicates.at_most == LEFT + 3


def test_what_was_never_read_is_said_and_is_no_zero(tmp_path: Path) -> None:
    write([row for second in range(0, 15, 5) for row in look(second, there=None)], tmp_path)

    found = asked(tmp_path, 10)

    assert "orders" in finding(found, "DR-RPO-021")[0]
    assert finding(found, "DR-RPO-022") == []


def test_where_the_queues_were_never_read_that_is_said_too(tmp_path: Path) -> None:
    looks = [row for second in range(0, 15, 5) for row in look(second) if row.kind != "queue"]
    write(looks, tmp_path)

    [told] = finding(asked(tmp_path, 11), "DR-RPO-021")

    assert "was not read beside it: orders" in told
