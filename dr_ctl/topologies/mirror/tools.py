"""The tools of the handlers for a mirror: timeouts, the gate that compares by origin, a reinstatement's results."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from dr_ctl.core.document import HIDDEN, derived, key
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, brief
from dr_ctl.core.notation import if_known
from dr_ctl.engine.ports import Done, Move, Outcome
from dr_ctl.topologies.artemis.reading import Origin, identity
from dr_ctl.topologies.common.gate import Gate, PairReading, accepting, refused
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.rules import not_accepted, selected
from dr_ctl.topologies.common.tools import Sender, Tools
from dr_ctl.topologies.common.view import Queue, Residue
from dr_ctl.topologies.mirror.reading import Observer, Session, browse, count_scheduled
from dr_ctl.topologies.mirror.view import ORIGINS_UP_TO, BrokerView, differences


@dataclass(frozen=True, slots=True)
class MirrorTimeouts:
    left_over_s: float = 2.0
    """A message that is at one site only for this time is left over: shipping takes less."""
    idle_s: float = 1.0
    """After this time without progress, a link is reported as hanging."""
    hung_s: float = 8.0
    """An attached link that ships nothing for this time is restarted; a large message takes some time."""


class MirrorGate(Gate[BrokerView]):
    observer: Observer

    def differing(self, now: PairReading[BrokerView], move: Move) -> list[str]:
        wrong = not_accepted(differences(now.source, now.target, self.observer.queues), move)
        return [counts.text(move.source, move.target) for counts in wrong]

    def compare(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        views, pair = {move.source: now.source, move.target: now.target}, now.source.pair
        queues = {site: selected(view, self.observer.queues) for site, view in views.items()}
        at_source, at_target = queues.values()
        shallow = [
            name
            for name, queue in at_source.items()
            if name in at_target and 0 < queue.depth == at_target[name].depth <= ORIGINS_UP_TO
        ]
        ends = [self.observer.brokers[site][pair] for site in views]

        def chosen(session: Session) -> list[Queue]:
            return [queues[session.site][name] for name in shallow]

        if shallow:  # no listing shows delayed messages
            scheduled = self.observer.ask_all(lambda session: count_scheduled(session.reader(), chosen(session)), ends)
            shallow = [name for name, *counts in zip(shallow, *scheduled, strict=True) if not any(counts)]
        listings = self.observer.ask_all(
            lambda end: browse(end.reader(), views[end.site], chosen(end), limit=ORIGINS_UP_TO), ends
        )
        ids: dict[str, dict[str, Collection[str]]] = {}
        sizes, texts, may_differ, by_count = dict[str, int](), list[str](), list[str](), list[str]()
        for name, local, peer in zip(shallow, *listings, strict=True):
            if unnamed := max(local.unnamed, peer.unnamed):
                by_count.append(f"{unnamed} of {name}")
            only_at_source, only_at_target = local.ids - peer.ids, peer.ids - local.ids
            if len(only_at_source) <= peer.unnamed and len(only_at_target) <= local.unnamed:
                continue  # these may be the messages whose origin is not shown
            by_site = {f"only at {move.source}": only_at_source, f"only at {move.target}": only_at_target}
            size, (first, second) = max(map(len, by_site.values())), map(len, by_site.values())
            text = f"{name}: {first} message(s) only at {move.source}, {second} only at {move.target}"
            if {name, at_source[name].address} & (now.source.differing | now.target.differing):
                may_differ.append(text)
            elif move.spec.accept_difference.get(name) != size:
                sizes[name] = size
                ids[name] = {place: {*map(identity, origins)} for place, origins in by_site.items()}
                texts.append(text)
        if sizes:
            source, target, options = move.source, move.target, accepting(sizes)
            return refused(
                "DR-PARITY-004.origins", ids, queues=brief(texts), accepting=options, source=source, target=target
            )
        findings = [found("DR-PARITY-005", named=brief(by_count))] if by_count else []
        findings += [found("DR-PARITY-002", loose=brief(may_differ))] if may_differ else []
        depths: dict[str, Json] = {name: queue.depth for name, queue in at_source.items() if queue.depth}
        compared = sum(len(listing.numbers) for listing in listings[0])
        return Done("the gate holds", {"ids_compared": compared, "depths": depths}, tuple(findings))


@dataclass
class ReturnResult:
    """The results of a reinstatement. A figure is None if it was not read, or an earlier process let the messages in.

    `acks` counts messages that were processed at the returned site and are no longer at the serving site. `echoes`
    counts acknowledgements that the returned site wrote only since its return, as repetitions of the serving site's.
    """

    recovered: dict[str, list[str]] | None = field(default=None, metadata=key(of="count"))
    not_read: list[str] = field(default_factory=list, metadata=HIDDEN)
    acks: int | None = field(default=None, metadata=key("acknowledgements_without_message"))
    acks_by_id: dict[str, list[str]] | None = field(default=None, metadata=key("acknowledged_ids"))
    echoes: int = 0

    @derived
    def ids(self) -> dict[str, list[str]]:
        """The ids of the messages that were recovered, by queue."""
        return self.recovered or {}

    def start_counting(self) -> None:
        """Count from zero: this process sees all messages that are let in."""
        self.recovered, self.acks, self.acks_by_id, self.echoes = {}, 0, {}, 0

    def add_recovered(self, queue: str, origins: Iterable[Origin]) -> None:
        if self.recovered is not None and (new := sorted(identity(origin) for origin in origins)):
            self.recovered[queue] = self.recovered.get(queue, []) + new

    def add_unmatched_count(self, count: int) -> None:
        self.acks = self.acks + count if self.acks is not None else None

    def add_unmatched(self, queue: str, origins: Iterable[Origin]) -> None:
        names = sorted(identity(origin) for origin in origins)
        self.add_unmatched_count(len(names))
        if self.acks_by_id is not None and names:
            self.acks_by_id[queue] = self.acks_by_id.get(queue, []) + names

    @property
    def count(self) -> int | None:
        if self.recovered is None or self.not_read:
            return None
        return sum(len(ids) for ids in self.recovered.values())

    @property
    def text(self) -> str:
        if self.recovered is None:
            return "an unknown number of messages recovered: an earlier process let them in"
        count = sum(len(ids) for ids in self.recovered.values())
        if self.not_read:
            return f"at least {count} message(s) recovered; not browsed: {brief(self.not_read)}"
        return f"{count} message(s) recovered"

    def duplicates(self, returned: str) -> str:
        """Report how many messages may be duplicates, and the number of echoes."""
        if self.acks is None:
            return ""
        too_many = (
            f"; {self.acks} event(s) of {returned} matched no message, and are too many to browse: this is the "
            "largest number of duplicates; those written since its return are harmless echoes"
        )
        missing = (
            f"; {self.acks} message(s) processed at {returned} before the loss are no longer here: each was "
            "known to be processed, or is a duplicate"
        )
        echoes = f"; {self.echoes} acknowledgement(s) that {returned} wrote since its return are harmless echoes"
        acks = (too_many if self.acks_by_id is None else missing) if self.acks else ""
        return acks + (echoes if self.echoes else "")


@dataclass
class UndoneReturn:
    """The messages of an undone reinstatement that were moved aside at the serving site, by queue of dr-ctl's own."""

    taken_out: dict[str, int] = field(default_factory=dict)
    duplicates: int = field(default=0, metadata=key("duplicates_at_most"))
    why: str | None = field(default=None, metadata=HIDDEN)

    def findings(self, move: Move) -> tuple[Finding, ...]:
        findings = []
        source, target = move.source, move.target
        if self.taken_out:
            count, queues = sum(self.taken_out.values()), ", ".join(sorted(self.taken_out))
            findings.append(found("DR-RETURN-006", count=count, target=target, source=source, taken_out=queues))
        if self.duplicates:
            most, why = f"at most {self.duplicates}", if_known(self.why)
            findings.append(found("DR-RETURN-007", most=most, target=target, why=why))
        return tuple(findings)


class MirrorTools(Tools[BrokerView]):
    """`residue` is that of each pair's returned broker when it was counted, `return_result` its recovery;
    `undone_return` has the messages that the undo of a reinstatement has moved aside."""

    observer: Observer
    by_console = "start its client acceptors"

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, MirrorGate(observer, recipe.rules.drain.poll))
        self.waits = self.timeouts.of(MirrorTimeouts)
        self.residue: dict[str, Residue] = {}
        self.return_result = ReturnResult()
        self.undone_return = UndoneReturn()
