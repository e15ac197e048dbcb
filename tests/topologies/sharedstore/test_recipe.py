"""What a plan has where something is otherwise than usual; the usual ones stand in tests/record."""

from __future__ import annotations

from dr_ctl.core.patience import Patience
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Ask, Call
from dr_ctl.engine.ports import Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.sharedstore import procedure
from dr_ctl.topologies.sharedstore.view import StoreSeen
from tests.topologies.sharedstore.views import broker, queue, seen, waiting, with_commands

RECIPE = procedure.open_.recipe(Queues(), Drain(), Patience())
BOTH = seen(broker("london", queue("orders.in", 3)), waiting(runs=True))


def calls(verb: str, told: StoreSeen = BOTH, operation: str = "swapover") -> tuple[Call, ...]:
    move = Move(Ask(operation, "paris"), "london", RECIPE.baseline(told))
    return RECIPE.draft(RunbookStep(verb, "both", 1), told, move).calls


def test_its_process_is_stopped_by_its_own_command_where_there_is_one_and_started_again() -> None:
    both = seen(broker(own=with_commands("london")), waiting(runs=True))

    stop, *_, start = calls("activate", both)

    assert (stop.goal, stop.request) == (Goal.HAND_OVER, {"process": "stop"})
    assert (start.site, start.goal, start.part, start.when) == ("london", Goal.START, "beside", "it has ended")


def test_of_a_lost_site_nothing_is_asked() -> None:
    lost = seen(waiting("london"), waiting(runs=True))

    assert calls("activate", lost, "failover") == ()
    assert calls("quarantine", lost, "failover") == ()
    [owed] = calls("fence", lost, "failover")
    assert (owed.site, owed.thing) == ("paris", "dr-ctl.debt.paris.fence.london")


def test_the_wait_lasts_as_long_as_a_lease_can_and_a_broker_needs_to_start() -> None:
    move = Move(Ask("failover", "paris"), "london", RECIPE.baseline(BOTH))
    draft = RECIPE.draft(RunbookStep("activate", "target", 1), BOTH, move)

    assert draft.limits == {"within": 2 * 10.0 + Patience().activate_s}
