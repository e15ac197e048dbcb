"""The tools of acts at a pair with the replication plugin, and their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dr_ctl.core.model import Json
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Hand
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.replica.access import Observer
from dr_ctl.topologies.replica.calls import ROLE
from dr_ctl.topologies.replica.verifier import ReplicaVerifier
from dr_ctl.topologies.replica.view import BrokerView


@dataclass
class TakenIn:
    """The counts of a return by queue: messages that only the returned site has, because they were never shipped
    (`kept`), and messages that only the serving site has, which may come `duplicates`."""

    kept: dict[str, int] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        kept, duplicates = sum(self.kept.values()), sum(self.duplicates.values())
        return f"{kept} message(s) recovered; {duplicates} may come twice"

    def as_json(self) -> dict[str, Json]:
        return {"recovered": sum(self.kept.values()), "possible_duplicates": dict(self.duplicates)}


class ReplicaTools(Tools[BrokerView]):
    """`answered`: every call that gives a part so far was answered, and none of them with a no."""

    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, ReplicaVerifier(observer, recipe.rules.drain.poll))
        self.taken_in = TakenIn()
        self.answered = True

    def change(self, calls: Sequence[Call], hand: Hand) -> list[Outcome]:
        outcomes = super().change(calls, hand)
        for call, each in zip(calls, outcomes, strict=True):
            if (call.goal, call.thing) == (Goal.OPEN, ROLE):
                self.answered = self.answered and isinstance(each, Done)
        return outcomes
