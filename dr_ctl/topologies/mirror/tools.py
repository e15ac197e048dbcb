"""The acts at a mirror use these tools: timeouts, the gate that compares by origin, the results of a return."""

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
from dr_ctl.topologies.mirror.reading import Observer, Session, browsed, scheduled
from dr_ctl.topologies.mirror.view import ORIGINS_UP_TO, BrokerView, differences


@dataclass(frozen=True, slots=True)
class MirrorTimeouts:
    left_over_s: float = 2.0
    """A message that lies at one side of a mirror alone for so long is left over: nothing under way explains it."""
    idle_s: float = 1.0
    """After so long without movement a person is told that a link hangs."""
    hung_s: float = 8.0
    """An attached link that ships nothing for so long is restarted; a large message may take a moment."""


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

        def named(session: Session) -> list[Queue]:
            return [queues[session.site][name] for name in shallow]

        if shallow:  # delayed messages are in no listing
            waiting = self.observer.ask_all(lambda session: scheduled(session.reader(), named(session)), ends)
            shallow = [name for name, *counts in zip(shallow, *waiting, strict=True) if not any(counts)]
        listings = self.observer.ask_all(
            lambda session: browsed(session.reader(), views[session.site], named(session), limit=ORIGINS_UP_TO), ends
        )
        ids: dict[str, dict[str, Collection[str]]] = {}
        sizes, texts, aside, by_count = dict[str, int](), list[str](), list[str](), list[str]()
        for name, local, peer in zip(shallow, *listings, strict=True):
            if unnamed := max(local.unnamed, peer.unnamed):
                by_count.append(f"{unnamed} of {name}")
            only_at_source, only_at_target = local.ids - peer.ids, peer.ids - local.ids
            if len(only_at_source) <= peer.unnamed and len(only_at_target) <= local.unnamed:
                continue  # messages without a shown origin can be all of these
            alone = {f"only at {move.source}": only_at_source, f"only at {move.target}": only_at_target}
            size, (first, second) = max(map(len, alone.values())), map(len, alone.values())
            text = f"{name}: {first} message(s) only at {move.source}, {second} only at {move.target}"
            if {name, at_source[name].address} & (now.source.differing | now.target.differing):
                aside.append(text)
            elif move.spec.accept_difference.get(name) != size:
                sizes[name], ids[name] = size, {where: {*map(identity, origins)} for where, origins in alone.items()}
                texts.append(text)
        if sizes:
            source, target, options = move.source, move.target, accepting(sizes)
            return refused(
                "DR-PARITY-004.origins", ids, queues=brief(texts), accepting=options, source=source, target=target
            )
        findings = [found("DR-PARITY-005", named=brief(by_count))] if by_count else []
        findings += [found("DR-PARITY-002", loose=brief(aside))] if aside else []
        depths: dict[str, Json] = {name: queue.depth for name, queue in at_source.items() if queue.depth}
        compared = sum(len(listing.numbers) for listing in listings[0])
        return Done("the gate holds", {"ids_compared": compared, "depths": depths}, tuple(findings))


@dataclass
class ReturnResult:
    """The results of a return. A figure is None where it was not read, or an earlier process let the messages in.

    `acks` counts messages done at the returned site and not here any more. `echoes` counts those of them that the
    returned site only wrote since it is back: the site repeats acknowledgements of the serving site.
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
        """Count from here on: all that is let in is seen."""
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
            return "how many messages were recovered is not known: they were let in by an earlier process"
        count = sum(len(ids) for ids in self.recovered.values())
        if self.not_read:
            return f"at least {count} message(s) recovered; not looked at one by one: {brief(self.not_read)}"
        return f"{count} message(s) recovered"

    def duplicates(self, returned: str) -> str:
        """Say how many messages may have come twice by the loss, and which acknowledgements only look like it."""
        if self.acks is None:
            return ""
        too_many = (
            f"; {self.acks} event(s) of {returned} matched no message, too many to check each: at most so many "
            "duplicates; those written since its return are harmless echoes"
        )
        gone = (
            f"; {self.acks} message(s) processed at {returned} before the loss were gone here: each was known as "
            "processed, or is a duplicate"
        )
        back = f"; {self.echoes} acknowledgement(s) that {returned} wrote since it is back are echoes, harmless"
        acks = (too_many if self.acks_by_id is None else gone) if self.acks else ""
        return acks + (back if self.echoes else "")


@dataclass
class UndoneReturn:
    """The messages of a half return that were taken out of the serving site, by queue of dr-ctl's own."""

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
    """`residue` is what each pair's returned broker held when it was counted, `return_result` what became of it,
    `undone_return` what the undo of a reinstatement has moved aside."""

    observer: Observer
    by_console = "start its client acceptors"

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, MirrorGate(observer, recipe.rules.drain.poll))
        self.waits = self.timeouts.of(MirrorTimeouts)
        self.residue: dict[str, Residue] = {}
        self.return_result = ReturnResult()
        self.undone_return = UndoneReturn()
