"""The tools of acts at a mirror, and the results of a return: messages recovered, messages that came twice."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dr_ctl.core.model import Finding, Json, some
from dr_ctl.core.printable import if_known
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common.findings import UNDONE_DUPLICATES
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.findings import UNDONE_SET_ASIDE
from dr_ctl.topologies.mirror.origins import Origin, told
from dr_ctl.topologies.mirror.patience import MirrorPatience
from dr_ctl.topologies.mirror.verifier import MirrorVerifier
from dr_ctl.topologies.mirror.view import BrokerView


@dataclass
class TakenIn:
    """The results of a return. A figure is None where it was not read, or an earlier process let the messages in.

    `acks` counts messages done at the returned site and not here any more. `echoes` counts those of them that the
    returned site only wrote since it is back: the site repeats acknowledgements of the serving site."""

    recovered: dict[str, list[str]] | None = None
    not_read: list[str] = field(default_factory=list)
    acks: int | None = None
    acks_by_id: dict[str, list[str]] | None = None
    echoes: int = 0

    def begin(self) -> None:
        """From here on all that is let in is seen."""
        self.recovered, self.acks, self.acks_by_id, self.echoes = {}, 0, {}, 0

    def add_recovered(self, queue: str, origins: Iterable[Origin]) -> None:
        if self.recovered is not None and (new := sorted(told(each) for each in origins)):
            self.recovered[queue] = self.recovered.get(queue, []) + new

    def add_acks(self, count: int) -> None:
        self.acks = self.acks + count if self.acks is not None else None

    def add_acked(self, queue: str, origins: Iterable[Origin]) -> None:
        found = sorted(told(each) for each in origins)
        self.add_acks(len(found))
        if self.acks_by_id is not None and found:
            self.acks_by_id[queue] = self.acks_by_id.get(queue, []) + found

    @property
    def count(self) -> int | None:
        if self.recovered is None or self.not_read:
            return None
        return sum(len(ids) for ids in self.recovered.values())

    @property
    def text(self) -> str:
        if self.recovered is None:
            return "how many messages were recovered is not known: they were let in by an earlier process"
        seen = sum(len(ids) for ids in self.recovered.values())
        if self.not_read:
            return f"at least {seen} message(s) recovered; not looked at one by one: {some(self.not_read)}"
        return f"{seen} message(s) recovered"

    def duplicates(self, returned: str) -> str:
        """Say how many messages may have come twice by the loss, and which acknowledgements only look like it."""
        if self.acks is None:
            return ""
        text = ""
        if self.acks and self.acks_by_id is None:
            text = (
                f"; {self.acks} event(s) of {returned} found no message, too many to look at each: at most so many "
                f"came twice; those that it wrote since it is back are only echoes of what was done here"
            )
        elif self.acks:
            text = (
                f"; {self.acks} message(s) done at {returned} before the loss were not here any more: each was known "
                "here to be done, or has come twice"
            )
        if self.echoes:
            text += f"; {self.echoes} acknowledgement(s) that {returned} wrote since it is back are echoes, harmless"
        return text

    def as_json(self) -> dict[str, Json]:
        return {
            "recovered": self.count,
            "ids": _lists(self.recovered or {}),
            "acknowledgements_without_message": self.acks,
            "echoes": self.echoes,
            "acknowledged_ids": _lists(self.acks_by_id) if self.acks_by_id is not None else None,
        }


def _lists(ids: Mapping[str, list[str]]) -> dict[str, Json]:
    return {queue: [*each] for queue, each in ids.items()}


@dataclass
class HalfWay:
    """Messages of a half return that were taken out of the serving site, by queue of dr-ctl's own; messages that may
    come twice."""

    taken_out: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    why: str | None = None

    def findings(self, move: Move) -> tuple[Finding, ...]:
        found = []
        if self.taken_out:
            text = (
                f"{sum(self.taken_out.values())} message(s) that came in had been done at {move.target}: taken out of "
                f"{move.source} into {', '.join(sorted(self.taken_out))}, and not delivered"
            )
            remedy = f"`dr-ctl reinstate {move.target}` brings the rest; then compare what lies there, and remove it."
            found.append(UNDONE_SET_ASIDE(text, remedy))
        if self.duplicates:
            why = if_known(self.why)
            text = f"at most {self.duplicates} message(s) that came in of {move.target} may come twice: {why}"
            remedy = f"Clients must recognise what they have done; `dr-ctl reinstate {move.target}` brings the rest."
            found.append(UNDONE_DUPLICATES(text, remedy))
        return tuple(found)

    def as_json(self) -> dict[str, Json]:
        return {"taken_out": dict(self.taken_out), "duplicates_at_most": self.duplicates}


class MirrorTools(Tools[BrokerView]):
    """`residue` is what each pair's returned broker held when it was counted, `taken_in` what became of it, `half_way`
    what of it an undo has taken out."""

    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, MirrorVerifier(observer, recipe.rules.drain.poll))
        self.waits = self.patience.of(MirrorPatience)
        self.residue: dict[str, Residue] = {}
        self.taken_in = TakenIn()
        self.half_way = HalfWay()
