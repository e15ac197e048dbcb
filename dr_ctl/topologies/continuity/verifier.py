"""Compares at the gate where the plugin joins the sites: every message of the source must be at the target once."""

from collections.abc import Iterator, Sequence

from dr_ctl.core.model import Finding, Json, Severity, some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common.apart import refused
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.access import Observer
from dr_ctl.topologies.continuity.copies import Compared
from dr_ctl.topologies.continuity.findings import COUNTED_NOT_NAMED, FLOWS_DIFFER, STAGED_NOT_DELIVERED
from dr_ctl.topologies.continuity.patience import PluginPatience
from dr_ctl.topologies.continuity.view import SiteView


class ContinuityVerifier(Verifier[SiteView]):
    def __init__(self, observer: Observer, poll_s: float) -> None:
        self._brokers = observer.brokers
        super().__init__(observer, poll_s, observer.patience.of(PluginPatience).window_s)

    def differing(self, now: Sample[SiteView], move: Move) -> list[str]:
        source, target = now.source, now.target
        accepted = move.ask.accept_difference
        differences = []
        for name, queue in selected(source, self.observer.queues).items():
            there = target.lies(name)
            if queue.depth != there and accepted.get(name) != abs(queue.depth - there):
                differences.append(f"{name}: {queue.depth} at {move.source}, {there} at {move.target}")
        return differences

    def same(self, now: Sample[SiteView], move: Move) -> Outcome:
        source, target = now.source, now.target
        here, there = (self._brokers[site][source.pair].reader() for site in (move.source, move.target))
        if lacking := copies.one_sided(source, target):
            text = f"messages in flows that only one of {source.site} and {target.site} has: {some(lacking)}"
            return Refused(text, findings=(FLOWS_DIFFER(text, "Create the queue at both sites."),))
        compared = copies.compare(here, there, source, target)
        if waiting := [each.queue for each in compared if each.undelivered]:
            text = f"staged at {move.source} and never delivered there: {some(waiting)}"
            return Refused(text, findings=(STAGED_NOT_DELIVERED(text, f"`dr-ctl activate {move.source}`."),))
        wrong = [
            f"{each.queue}: {len(each.missing)} only at {move.source}, {len(_too_many(each))} too many at {move.target}"
            for each in compared
            if each.known
            and (
                each.surplus
                or each.done
                or any(_refused(len(ids), each.queue, move) for ids in (each.missing, each.unproven))
            )
        ]
        if unread := [
            each.queue for each in compared if not each.known and each.queue not in move.ask.accept_difference
        ]:
            text = f"could not be compared by id, and a count does not show what would be lost: {some(unread)}"
            return Refused(text, findings=(COUNTED_NOT_NAMED(text, copies.BY_COUNT),))
        if wrong:
            text = f"the sites do not hold the same messages: {some(wrong)}"
            apart = {
                each.queue: {f"only at {move.source}": each.missing, f"too many at {move.target}": _too_many(each)}
                for each in compared
            }
            return refused(text, "Run the command again.", apart)
        depths: dict[str, Json] = {name: queue.depth for name, queue in source.business.items() if queue.depth}
        ids = sum(len(each.here) for each in compared if each.here is not None)
        return Done("the gate holds", {"ids_compared": ids, "depths": depths}, tuple(_by_count(compared)))


def _by_count(compared: Sequence[Compared]) -> Iterator[Finding]:
    """Find the queues that were not compared by id."""
    if names := [each.queue for each in compared if not each.known]:
        text = (
            f"compared by count only, being deeper than {copies.IDS_UP_TO} or with messages that could not be "
            f"named: {some(names)}"
        )
        yield COUNTED_NOT_NAMED(
            text, "What lacks its copy there is lost, what was not removed comes twice.", severity=Severity.WARNING
        )


def _too_many(each: Compared) -> frozenset[str]:
    return each.surplus | each.done | each.unproven


def _refused(number: int, queue: str, move: Move) -> bool:
    return number > 0 and move.ask.accept_difference.get(queue) != number
