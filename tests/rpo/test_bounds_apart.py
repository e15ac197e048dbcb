"""What any reading shows at one site and not at the other counts, by queue, whatever the outflow says."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.model import Severity
from dr_ctl.rpo.bounds.bounds import bounds, latest_end
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import at

PAIR, DIED_S = "orders-1", 20.0
Depths = Mapping[str, tuple[int, int]]
"""By queue what lies at london and at paris."""


def look(second: float, depths: Depths, flows: Mapping[tuple[str, str], int], *, met: bool = True) -> Iterator[Row]:
    """Of a broker at rest; `flows` are its outflows. `met`: paris answered too."""

    def row(site: str, kind: str, name: str, depth: int | None, **more: Any) -> Row:
        return Row(site=site, ts=at(second), pair=PAIR, kind=kind, name=name, depth=depth, **more)

    counted: dict[str, Any] = {"added": 1000, "removed": 1000, "start": "1"}
    yield row("london", "site", "serving", None, start="1", took_ms=9)
    yield row("paris", "site", "standby" if met else "unknown", None, start="7" if met else None, took_ms=9)
    for (kind, name), depth in flows.items():
        yield row("london", kind, name, depth, link=True, **counted)
    for name, (here, there) in depths.items():
        yield row("london", "queue", name, here, acked=1000, delivering=0, **counted)
        if met and ("acks", name) in flows:
            yield row("london", "staged", name, there, start="1")
        if met:
            yield row("paris", "queue", name, there, acked=0, delivering=0, added=60, removed=0, start="7")


def asked(folder: Path, rows: list[Row], **more: Any) -> Bounds:
    down = Row(site="london", ts=at(DIED_S + 0.2), pair=PAIR, kind="site", name="down", took_ms=1)
    write([*rows, down], folder)
    return bounds(folder, site="london", other="paris", now=at(DIED_S + 1), pairs=[PAIR], **more)


def at_rest(depths: Depths, flows: Mapping[tuple[str, str], int], **more: Any) -> list[Row]:
    return [row for number in range(21) for row in look(number, depths, flows, **more)]


MIRROR = {("mixed", "*"): 0}
NOTHING_ON_ITS_WAY = {
    "a mirror": MIRROR,
    "the plugin": {(kind, name): 0 for kind in ("mirror", "acks") for name in ("orders.in", "audit.log")},
}


@pytest.mark.parametrize("flows", NOTHING_ON_ITS_WAY.values(), ids=NOTHING_ON_ITS_WAY)
def test_where_sites_differ_and_nothing_is_on_its_way_nobody_can_say_how_much_is_lost(
    tmp_path: Path, flows: Mapping[tuple[str, str], int]
) -> None:
    """As with an address filter and without acknowledgements."""
    found = asked(tmp_path, at_rest({"orders.in": (20, 60), "audit.log": (30, 0), "calm": (5, 5)}, flows))

    assert (found.lost.at_most, found.lost.likely) == (None, None)
    assert [(each.name, each.lost) for each in found.queues] == [("audit.log", None), ("calm", 0), ("orders.in", 0)]
    assert "at least 30: audit.log: 30 at london, 0 at paris" in found.because
    [differ] = [each for each in found.findings if each.id == "DR-PARITY-001"]
    assert differ.severity is Severity.WARNING
    assert "audit.log: 30 at london, 0 at paris" in differ.text
    assert found.exceeds(None, 0)
    assert found.exceeds(None, 1000)
    assert found.exceeds(None, "unknown") == ()
    if flows is MIRROR:
        assert found.duplicates.at_most is None
        assert "orders.in: 20 at london, 60 at paris" in differ.text
        assert found.doubles(None, 1000) is not None
    else:  # staged copies of lost acknowledgements are its own knowledge
        assert (found.duplicates.at_most or 0) >= 40


def test_a_queue_that_nothing_ships_is_lost_with_its_site(tmp_path: Path) -> None:
    """As a queue without a bridge of its own."""
    flows = {("mirror", "orders.in"): 2, ("acks", "*"): 0}

    found = asked(tmp_path, at_rest({"orders.in": (20, 500), "local": (30, 0)}, flows))

    assert (found.lost.at_most, found.lost.likely) == (32, 32)
    assert found.duplicates.at_most == 0, "ids tell the copies of what was done"
    assert [(each.name, each.lost) for each in found.queues] == [("local", 30), ("orders.in", 2)]
    assert "+ 30 at london alone (local: 30 at london, 0 at paris)" in (found.because or "")


def test_what_comes_to_a_queue_that_nothing_ships_is_lost_too(tmp_path: Path) -> None:
    rows = []
    for number in range(21):
        sent = 10 * number
        rows += look(number, {"orders.in": (0, 0)}, {("mirror", "orders.in"): 0, ("acks", "*"): 0})
        rows.append(Row(site="london", ts=at(number), pair=PAIR, kind="queue", name="local", depth=0, delivering=0,
                        added=sent, removed=sent, acked=sent, start="1"))  # fmt: skip

    found = asked(tmp_path, rows)

    assert 10 <= found.lost.at_most <= 40
    limit = Objectives(LossLimit(10**6), (LossClass(("local",), LossLimit(0)),))
    [of_class] = asked(tmp_path / "again", rows, objectives=limit).classes
    assert of_class.lost == found.lost.at_most


THREE = {"orders.in": (20, 60), "audit.log": (30, 0), "calm": (5, 5)}
# As of the site that serves since a failover: what the lost one had not shipped lies there alone.
TO_SHIP: dict[str, Any] = {"site": "paris", "pair": PAIR, "kind": "mixed", "name": "*", "start": "7", "depth": 12}
EXPLAINED: dict[str, tuple[list[Row], dict[str, Any], tuple[int, int]]] = {
    "what is on its way": (at_rest({"orders.in": (20, 60), "audit.log": (30, 0)}, {("mixed", "*"): 70}), {}, (50, 70)),
    "excluded queues": (at_rest(THREE, MIRROR), {"exclude": ["audit.#", "orders.#"]}, (0, 0)),
    "included queues": (at_rest(THREE, MIRROR), {"include": ["calm"]}, (0, 0)),
    "queues whose content may differ, by what was seen": (
        at_rest({"DLQ": (30, 4), "expired": (0, 3)}, MIRROR), {"differ": {"DLQ", "expired"}}, (26, 3)),
    "what the other site still had to ship": (
        [*at_rest({"orders.in": (40, 52)}, MIRROR),
         *(Row(**TO_SHIP, ts=at(number), added=12, removed=0) for number in range(21))], {}, (0, 12)),
    "a site that did not answer": (at_rest({"orders.in": (20, 60)}, MIRROR, met=False), {}, (0, 0)),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "more", "figures"), EXPLAINED.values(), ids=EXPLAINED)
def test_a_difference_that_is_explained_is_told_by_its_figures(
    tmp_path: Path, rows: list[Row], more: dict[str, Any], figures: tuple[int, int]
) -> None:
    found = asked(tmp_path, rows, **more)

    assert (found.lost.at_most, found.duplicates.at_most, found.findings) == (*figures, ())


def test_two_sites_that_are_not_read_in_one_instant_do_not_differ(tmp_path: Path) -> None:
    """Counts of a queue at work wander around each other."""
    rows: list[Row] = []
    for number in range(81):
        second, wander = number / 4, (3, 0, -4, 1)[number % 4]
        for row in look(second, {"orders.in": (50, 50 + wander), "audit.log": (55 + wander, 50)}, MIRROR):
            counts = {"added": 1000 + number * 10, "acked": 1000 + number * 10}
            rows.append(replace(row, **counts) if row.site == "london" and row.kind != "site" else row)

    found = asked(tmp_path, rows)

    assert found.lost.at_most is not None
    assert found.duplicates.at_most is not None
    assert found.findings == ()


def test_no_bound_is_below_what_the_last_reading_of_both_sites_shows(tmp_path: Path) -> None:
    rows = [*at_rest({"orders.in": (50, 50)}, MIRROR)][:-4]
    rows += look(20, {"orders.in": (57, 50), "audit.log": (0, 6)}, MIRROR)

    found = asked(tmp_path, rows)

    assert (found.lost.at_most, found.duplicates.at_most) == (7, 6)
    assert {each.name: (each.lost, each.duplicates) for each in found.queues} == {
        "audit.log": (0, 6),
        "orders.in": (7, 0),
    }
    assert found.lost.likely <= 7


def test_a_difference_is_one_until_both_sites_are_read_again(tmp_path: Path) -> None:
    """However long one of them is away."""
    write(at_rest({"audit.log": (30, 0)}, MIRROR), tmp_path)
    for minute in range(1, 90):
        moments = range(60 * minute, 60 * minute + 60, 10)
        write([row for each in moments for row in look(each, {"audit.log": (30, 0)}, MIRROR, met=False)], tmp_path)

    found = bounds(tmp_path, site="london", other="paris", now=at(90 * 60), down_at=at(90 * 60), pairs=[PAIR])

    assert found.lost.at_most is None
    assert "at least 30: audit.log: 30 at london, 0 at paris" in (found.because or "")


@pytest.mark.parametrize(("came", "start", "lost"), [(30, "7", 0), (31, "7", None), (31, "8", 0)])
def test_where_more_came_to_the_other_site_since_than_the_pace_explains_nothing_is_bounded(
    tmp_path: Path, came: int, start: str, lost: int | None
) -> None:
    """As where clients came back to work after the last reading. After a restart there counters tell nothing."""
    live = Row(site="paris", ts=at(30), pair=PAIR, kind="queue", name="calm", added=60 + came, start=start)

    found = asked(tmp_path, at_rest({"calm": (5, 5)}, {("mixed", "*"): 30}), live=[live])

    unbounded = [each.text for each in found.findings if each.id == "DR-RPO-011"]
    known = found.lost.at_most is not None, found.duplicates.at_most is not None, found.queues[0].lost is not None
    assert (known, bool(unbounded)) == ((lost is not None,) * 3, lost is None)
    assert all(f"{came} message(s) came to the other site since" in text for text in unbounded)


def test_no_end_of_the_service_keeps_a_loss_within_a_limit_that_nobody_knows(tmp_path: Path) -> None:
    write(at_rest({"audit.log": (30, 0)}, MIRROR), tmp_path)

    asked_for: dict[str, Any] = {"site": "london", "now": at(60), "pairs": [PAIR], "most": 1000}
    assert latest_end(tmp_path, **asked_for, other="paris") is None
    assert latest_end(tmp_path, **asked_for) is not None
