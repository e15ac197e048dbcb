"""The act of `reinstate`: a broker that came back waits."""

from dr_ctl.core.model import Role
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.sharedstore.tools import StoreTools


def act(tools: StoreTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """See that the broker waits. Where no command tells of its process, its closed ports are the only sign."""
    for view in tools.observer.look_at(move.target):
        if view.role is not Role.STANDBY:
            state = "its process does not run" if view.runs is False else f"it is {view.role.value}"
            return Refused(f"{move.target} does not wait for the store: {state}")
    if (refused := tools.make(step.calls, hand, move.source, move.target)) is not None:
        return refused
    return Done(f"{move.target} waits for the store")
