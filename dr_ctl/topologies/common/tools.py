"""What acts work with in one command: eyes, a sender, the doors, the gate, and what they remember."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.doors import Doors
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.seen import V_co
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.verifier import Verifier


class Tools(Generic[V_co]):
    """One instance serves one command. `opened` once a call that opens the target has gone out."""

    def __init__(self, observer: Observer[V_co], recipe: Recipe[V_co], sender: Sender, gate: Verifier) -> None:
        self.observer, self.recipe, self.sender, self.gate = observer, recipe, sender, gate
        self.rules, self.patience = recipe.rules, observer.patience
        self.doors = Doors(observer)
        self.opened = False

    def change(self, calls: Sequence[Call], hand: Hand) -> list[Outcome]:
        return hand.change(calls, self.sender.send)

    def taken_back(self, move: Move) -> set[str]:
        """The pairs at the target that something else closes again, where the topology has such a thing."""
        del move
        return set()
