"""What a failover may lose, held against its limits: by class, exactly at them, by age."""

from pathlib import Path

import pytest

from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.test_bounds import STEADY, asked, busy, look, outflow, queue, role


def classes(**limits: int | None) -> Objectives:
    told = tuple(LossClass((f"{name}.#",), LossLimit(limit)) for name, limit in limits.items())
    return Objectives(LossLimit(100_000), told)


def test_a_class_is_judged_by_its_own_queues(tmp_path: Path) -> None:
    busy(tmp_path)
    told = classes(orders=4, audit=619, absent=39, free=None)

    found = asked(tmp_path, 11, objectives=told)

    assert [(each.queues, each.lost, each.exceeded) for each in found.classes] == [
        (("orders.#",), 4, False),
        (("audit.#",), 620, True),
        (("absent.#",), 40, True),  # what was not there yet can only hold what came since
        (("free.#",), 40, False),
    ]
    assert found.exceeds(told) == (
        "up to 620 message(s) of audit.# may be lost, their objective allows 619",
        "up to 40 message(s) of absent.# may be lost, their objective allows 39",
    )
    assert found.exceeds(told, 622) == ()


@pytest.mark.parametrize("limit", [56, 57, 58, None])
def test_exactly_the_limit_is_not_above_it_and_without_one_nothing_may_be_lost(
    tmp_path: Path, limit: int | None
) -> None:
    write(STEADY, tmp_path)
    found = asked(tmp_path, 14)

    assert bool(found.exceeds(Objectives(LossLimit(limit)))) is (limit == 56)
    assert bool(found.exceeds(None, limit)) is (limit in (56, None))
    assert found.exceeds(Objectives(LossLimit(56))) == ("up to 57 message(s) may be lost, the objectives allow 56",)
    assert found.exceeds(None) == ("up to 57 message(s) may be lost, no objectives are set that allow any",)


AGED = Objectives(LossLimit(None, 12.0))
"""Any number may be lost, none older than twelve seconds."""


LEFT = "messages may be lost and the oldest is up to 14 s old, the objectives allow 12 s"
UNKNOWN = "how much london takes with it is not known"
UNTOLD = "messages may be lost and how old they are is not known, the objectives allow 12 s"


@pytest.mark.parametrize(
    ("rows", "age_s", "reasons"),
    [
        (STEADY, 5.0, ()),  # seven of two hundred are left: the first of them came after the look a second before
        ([*look(0, 0, 0), *look(5, 0, 50), *look(10, 0, 100)], 4.0, ()),
        ([*look(0, 0, 0), *look(5, 50, 50), *look(10, 100, 100)], 14.0, (LEFT,)),
        ([*look(0, 3, 40), *look(5, 53, 90), *look(10, 103, 140)], None, (UNTOLD,)),
        ([role("serving", 0), outflow(0, 0, 0), outflow(10, 7, 7, start="2")], None, (UNKNOWN,)),
        ([*look(0, 0, 0), *look(5, 0, 0), *look(10, 0, 0)], 4.0, ()),
    ],
    ids=["some left", "empty", "all left", "longer than the looks", "restarted", "nothing is lost"],
)
def test_the_oldest_that_may_be_lost_was_put_in_after_a_look_and_is_judged_unless_a_loss_is_accepted(
    tmp_path: Path, rows: list[Row], age_s: float | None, reasons: tuple[str, ...]
) -> None:
    write(rows, tmp_path)

    found = asked(tmp_path, 14, objectives=AGED)

    assert (found.age_s, found.exceeds(AGED)) == (age_s, reasons)
    assert found.exceeds(AGED, accept=1000) == () or found.lost.at_most is None


def test_a_class_has_an_age_of_its_own(tmp_path: Path) -> None:
    rows = [
        *look(0, 0, 0),
        *look(5, 0, 50),
        queue(5, "audit.x", 0, 50),
        *look(10, 50, 100),
        queue(10, "audit.x", 50, 100),
    ]
    write(rows, tmp_path)
    limits = Objectives(LossLimit(None), (LossClass(("audit.#",), LossLimit(None, 3.0)),))

    [reason] = asked(tmp_path, 14, objectives=limits).exceeds(limits)

    assert reason == "messages of audit.# may be lost and the oldest is up to 9.00 s old, the objectives allow 3.00 s"
