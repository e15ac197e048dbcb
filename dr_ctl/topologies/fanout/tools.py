"""The tools of acts at a fan-out pair, and the messages that a step has evened out between the sites."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.fanout.access import Way
from dr_ctl.topologies.fanout.ids import Comparing
from dr_ctl.topologies.fanout.observer import Observer
from dr_ctl.topologies.fanout.parity import Untold
from dr_ctl.topologies.fanout.verifier import FanoutVerifier
from dr_ctl.topologies.fanout.view import BrokerView

LISTED: Final = 1000  # ids of a queue; the calls in the journal name all of them


@dataclass
class Evened:
    """Ids of messages by queue. `removed` ones were consumed at the other site, `copied` ones were put where they
    lacked. `alone` ones lie at one site, and nobody is known to have consumed them; `untold` says why. `not_carried`
    ones lack, and cannot be copied whole."""

    removed: dict[str, set[str]] = field(default_factory=dict)
    copied: dict[str, set[str]] = field(default_factory=dict)
    alone: dict[str, set[str]] = field(default_factory=dict)
    untold: dict[str, Untold] = field(default_factory=dict)
    not_carried: dict[str, set[str]] = field(default_factory=dict)

    def note(self, kept: dict[str, set[str]], queue: str, ids: Collection[str]) -> None:
        kept.setdefault(queue, set()).update(ids)

    @property
    def copied_in_all(self) -> int:
        return sum(map(len, self.copied.values()))

    @property
    def removed_in_all(self) -> int:
        return sum(map(len, self.removed.values()))

    @property
    def text(self) -> str:
        removed = f"{self.removed_in_all} that were consumed at the other site removed"
        return f"{removed}, {self.copied_in_all} that it lacked copied"

    def as_json(self) -> dict[str, Json]:
        return {
            "duplicates": _listed(self.removed),
            "removed": self.removed_in_all,
            "copied": {queue: len(ids) for queue, ids in self.copied.items()},
            "alone": _listed(self.alone),
            "not_carried": _listed(self.not_carried),
        }


def _listed(ids_by_queue: Mapping[str, Collection[str]]) -> dict[str, Json]:
    return {queue: [*sorted(ids)[:LISTED]] for queue, ids in ids_by_queue.items()}


class FanoutTools(Tools[BrokerView]):
    """`evened` is what this step has done so far to make both sites hold the same."""

    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        self.comparing = Comparing(observer.store, observer.patience.differs_s)
        gate = FanoutVerifier(observer, self.comparing, recipe.rules.drain.poll)
        super().__init__(observer, recipe, sender, gate)
        self.evened = Evened()

    def between(self, source: str, target: str) -> list[Way]:
        """The brokers of every pair: first the source's, then the target's."""
        return [(here, self.observer.brokers[target][pair]) for pair, here in self.observer.brokers[source].items()]
