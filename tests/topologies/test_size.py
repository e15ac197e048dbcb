"""Ten times as many queues take ten times as long to decide for, not a hundred times."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.lease import LockDocument
from dr_ctl.engine.plan import Spec
from dr_ctl.engine.ports import Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common.calls import missing_effects
from dr_ctl.topologies.common.reasons import paused_at
from dr_ctl.topologies.common.snapshot import paused_by_runs
from dr_ctl.topologies.continuity import copies, procedure
from dr_ctl.topologies.continuity.view import ContinuitySnapshot, SiteView
from tests.topologies.continuity.views import broker, flow, queue, snapshot

FEW, MANY = 500, 5_000
QUADRATIC = MANY / FEW * 4  # a hundred, where the time grows with the square
RECIPE = procedure.TOPOLOGY.recipe(Queues(), Drain(), Timeouts())


def site(name: str, number: int) -> SiteView:
    """All its queues are paused, one half by a run."""
    names = [f"orders.{n}" for n in range(number)]
    lock = LockDocument(4, "a run", paused={"a run": tuple(names[::2])})
    return broker(
        name,
        *(flow(name, staged=1) for name in names),
        queues=tuple(queue(name, 1, paused=True) for name in names),
        documents={f"dr-ctl.lock.{name}.4": lock.to_text()},
    )


def both(number: int) -> ContinuitySnapshot:
    return snapshot(site("london", number), site("paris", number))


def asked(value: ContinuitySnapshot, operation: str = "swapover") -> Move:
    return Move(Spec(operation, "paris"), "london", RECIPE.baseline(value))


def drafted(verb: str, operation: str = "swapover") -> Callable[[ContinuitySnapshot], Any]:
    """What a verb decides, and whether all of it is seen to hold."""

    def draft(value: ContinuitySnapshot) -> None:
        plan_step = RECIPE.draft(RunbookStep(verb, "both", 1), value, asked(value, operation))
        effects = [call for call in (*plan_step.calls, *plan_step.inverse) if call.goal.value not in ("remove", "move")]
        assert missing_effects(effects, [*value.views("london"), *value.views("paris")]) is not None

    return draft


WORK: dict[str, Callable[[ContinuitySnapshot], Any]] = {
    "baseline": RECIPE.baseline,
    "basis": RECIPE.basis,
    "paused by runs": lambda options: [paused_by_runs(view) for view in options.views("london")],
    "paused at": lambda options: paused_at(options, "london"),
    "quiesce": drafted("quiesce"),
    "drain": drafted("drain"),
    "activate": drafted("activate"),
    "unfence": drafted("unfence", "unfence"),
    "reinstate": drafted("reinstate", "reinstate"),
    "checks": lambda options: RECIPE.why_not(options, asked(options)),
    "stake": lambda options: options.stake("london"),
    "compared": lambda options: copies.one_sided_queues(*options.views("london"), *options.views("paris")),
}


def took_s(work: Callable[[ContinuitySnapshot], Any], value: ContinuitySnapshot) -> float:
    """The least of a few: what else the machine does adds to each."""
    items = []
    for _ in range(3):
        began = time.process_time()
        work(value)
        items.append(time.process_time() - began)
    return min(items)


@pytest.fixture(scope="module")
def sizes() -> tuple[ContinuitySnapshot, ContinuitySnapshot]:
    return both(FEW), both(MANY)


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.deep if what == "reinstate" else ()) for what in WORK]
)
def test_nothing_grows_with_the_square_of_the_queues(
    sizes: tuple[ContinuitySnapshot, ContinuitySnapshot], what: str
) -> None:
    few, many = (took_s(WORK[what], size) for size in sizes)

    assert many < max(few, 0.0005) * QUADRATIC, (few, many)
