"""The act of `unfence`: the clients of closed queues let in again at one site."""

from dr_ctl.core.model import some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.common.effects import still


def act(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    opens, admits, rest = step.part("doors"), step.part("admit"), step.part("")
    if opens or admits:
        here = {call.thing for call in (*opens, *admits)}
        views = tools.observer.look_at(move.target)
        served = [unit for view in views for unit in view.open_among(move.ask.includes) if unit in here]
        if served:
            return Refused(f"{move.target} has {some(served)} open: a second site is never opened")
    tools.change([*opens, *rest], hand)
    if (kept_out := tools.admit(move.source, admits, hand)) is not None:
        return Refused(kept_out)
    done = Done(f"{move.source} lets clients in, and delivers" if opens or admits else "pauses lifted")
    waited = until(
        hand,
        lambda: still([*opens, *rest], tools.observer.look_at(move.source)),
        holds=lambda refused: refused is None,
        within_s=tools.patience.activate_s,
        poll_s=tools.patience.poll_s,
    )
    return waited.look or done
