"""The act of `activate`: how the counters stand is noted before clients are let in, since an agent worked there."""

from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.common import acts
from dr_ctl.topologies.common.access import READ_S


def act(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    for access in tools.observer.at(move.target):
        if not access.open_doors(timeout_s=READ_S):
            access.note_opening()
    return acts.activate.act(tools, step, move, hand)
