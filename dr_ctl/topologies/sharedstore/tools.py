"""The gate of brokers that share a store, and the tools of acts at them."""

from dr_ctl.core.model import Json
from dr_ctl.engine.ports import Done, Move, Outcome, Refused
from dr_ctl.topologies.common.gate import Sample, Verifier
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.tools import Sender, Tools
from dr_ctl.topologies.sharedstore.checks import not_in_store
from dr_ctl.topologies.sharedstore.reading import Observer
from dr_ctl.topologies.sharedstore.view import BrokerView


class StoreVerifier(Verifier[BrokerView]):
    observer: Observer

    def why_not_yet(self, now: Sample[BrokerView], before: Sample[BrokerView] | None, move: Move) -> list[str]:
        found = super().why_not_yet(now, before, move)
        source = now.source
        # In a run that goes on, the source may have given up the store already, and is closed by then.
        if not source.has_the_store and not (move.sent and not source.answered):
            lock = source.lock.text if source.lock is not None else "the lock was not read"
            found.append(f"{source.site} does not hold the store: {lock}")
        return found

    def differing(self, now: Sample[BrokerView], move: Move) -> list[str]:
        del now, move
        return []

    def same(self, now: Sample[BrokerView], move: Move) -> Outcome:
        """Messages that are not in the store are in its holder's memory alone, and go with it."""
        source = now.source
        depths: dict[str, Json] = {name: queue.depth for name, queue in source.business.items() if queue.depth}
        stored = self.observer.all()[0].shared.counts() if source.answered else None
        if stored is None:
            return Done("the gate holds", {"depths": depths})
        if wrong := not_in_store(source.lacking(stored), move.ask.accept_difference):
            return Refused(wrong[0].text, findings=tuple(wrong))
        return Done("the gate holds, and the store has all of it", {"depths": depths})


class StoreTools(Tools[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, StoreVerifier(observer, recipe.rules.drain.poll))
        self.shared = observer.all()[0].shared

    def by_hand(self, site: str, by_console: str) -> str:
        """A broker that has ended has no console: the first broker that starts takes the store and serves."""
        del by_console
        others = [access for name in self.observer.brokers if name != site for access in self.observer.at(name)]
        starts = [access.own.start for access in (*others, *self.observer.at(site))]
        return f"{' or '.join(starts)}: the first that starts takes the store and serves"
