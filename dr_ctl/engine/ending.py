"""Judges the end of a run by the observation after it: the exit code and the summary. Pure.

A code that claims success is kept only if the roles show it. The observation can make an end worse, never better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any, Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Role, brief
from dr_ctl.core.notation import duration
from dr_ctl.engine import operations
from dr_ctl.engine.plan import Spec
from dr_ctl.engine.ports import UnitSnapshot
from dr_ctl.engine.roles import CLOSED, by_site, queues_option, with_queues


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts at the end of a run. `before` are the sites that served before the run; `undone` is None if there was
    nothing to undo; `changed` says that a call was sent, `cut_off` that a hook kept clients out of a silent site;
    `by_hand` says how a person opens the source. `others` are the units that the request does not name; `unserved` has
    those of them that are closed now, with the site that served them before; `outcome` is that of the last step;
    `opened_unseen` says that the target let clients in between a run and its resumption, at an unknown moment.
    """

    spec: Spec
    source: str
    roles: Mapping[str, Role]
    units: tuple[UnitSnapshot, ...]
    before: tuple[str, ...]
    undone: bool | None
    changed: bool
    cut_off: bool
    outage_s: float | None
    bounds: Mapping[str, Json] | None
    by_hand: str
    unserved: Mapping[str, str] = field(default_factory=dict)
    others: tuple[UnitSnapshot, ...] = ()
    outcome: str = ""
    opened_unseen: bool = False

    @property
    def serving(self) -> list[str]:
        return [site for site, role in self.roles.items() if role is Role.SERVING]

    @property
    def wanted(self) -> str:
        """The site that should serve; a reinstatement does not change it."""
        unchanged = (operations.REINSTATE, operations.QUIESCE, operations.UNFENCE, *operations.IN_PLACE)
        return self.source if self.spec.operation in unchanged else self.spec.target

    @property
    def other(self) -> str:
        return self.spec.target if self.wanted == self.source else self.source

    @property
    def as_before(self) -> bool:
        """The same sites serve as before the run. If no site served, the target must be closed. A returned site that
        was open beside the other must be closed."""
        if self.spec.operation in operations.REINSTATING:
            return self.serving == [self.source]
        if self.before:
            return sorted(self.serving) == sorted(self.before)
        # After a failover the source, which seemed lost, may serve.
        allowed = [[], [self.source]] if self.spec.operation == operations.FAILOVER else [[]]
        return self.serving in allowed and self.roles[self.spec.target] is Role.STANDBY

    @property
    def found_closed(self) -> bool:
        """A site served before the run, and both are closed now, maybe by a takeover."""
        closed = all(role in CLOSED for role in self.roles.values())
        return bool(self.before) and closed and self.spec.operation != operations.FAILOVER

    @property
    def missing(self) -> list[str]:
        """The units that the wanted site does not serve alone."""
        return [unit.name for unit in self.units if unit.serving != self.wanted]

    @property
    def left_out(self) -> list[str]:
        """The units that nobody serves while the source serves others."""
        served = any(unit.serving == self.source for unit in self.units)
        return [unit.name for unit in self.units if unit.serving is None] if served else []

    @property
    def named(self) -> str:
        """The names of the requested units, with a blank before; empty for all units."""
        return f" {brief([unit.name for unit in self.units])}" if self.others else ""

    @property
    def goes_on(self) -> str:
        """The sites that go on serving other units, or, after a fence, units whose copies were closed."""
        is_fence = self.spec.operation == operations.FENCE
        served = [unit for unit in self.units if is_fence and unit.serving not in (self.source, None)]
        units = sorted((*served, *self.others), key=lambda unit: unit.name) if self.others else []
        return "".join(f"; {site} goes on serving {brief(names)}" for site, names in by_site(units).items())

    def serves(self, site: str, how: str = "") -> str:
        return f"{site} serves{self.named}{how}"

    @property
    def roles_text(self) -> str:
        return ", ".join(f"{site} is {role.value}" for site, role in self.roles.items())


@dataclass(frozen=True, slots=True)
class End:
    code: ExitCode
    text: str
    undone: bool | None
    findings: tuple[Finding, ...] = ()


def unserved_units(units: Sequence[UnitSnapshot], served: Mapping[str, str]) -> Mapping[str, str]:
    """Return the units that are closed now at the site that served them before a run, and open nowhere."""
    closed = (unit.name for unit in units if served.get(unit.name) in unit.closed_at and not unit.open_at)
    return {name: served[name] for name in closed}


def judged(facts: Facts, code: ExitCode, text: str) -> End:
    """Check the code of the steps by the observation, also of units that the request does not name."""
    end = _judge_requested(facts, code, text)
    if not facts.unserved:
        return end
    named = ", ".join(f"{unit} of {site}" for unit, site in facts.unserved.items())
    unit, site = next(iter(facts.unserved.items()))
    finding = found("DR-RUN-001.not_asked", site=site, unit=quote(unit), units=named)
    code = ExitCode.INCOMPLETE if end.code is ExitCode.OK else end.code
    code = ExitCode.UNKNOWN if end.undone and code is not ExitCode.STRANDED else code
    text, undone = f"{end.text}; served nowhere any more: {named}", False if end.undone else end.undone
    return End(code, text, undone, (*end.findings, finding))


def _judge_requested(facts: Facts, code: ExitCode, text: str) -> End:
    undone = facts.undone
    if code is ExitCode.OK and undone is None:
        code, text = _success(facts)
    elif undone and facts.changed:
        if facts.as_before:
            how = " as before" if facts.spec.operation in operations.IN_PLACE else " again"
            again = facts.serves(facts.serving[0], how) if len(facts.serving) == 1 else "no site serves, as before"
            text = f"{text}: {'as before' if len(facts.serving) > 1 else again}"
        else:
            code, undone, text = ExitCode.STRANDED, False, f"{text}, but {facts.roles_text}"
    elif code is ExitCode.OK and not facts.as_before:
        code, text = ExitCode.UNKNOWN, f"{text}, but {facts.roles_text}: look at {facts.source} first"
    elif undone and facts.found_closed:
        code, undone, text = ExitCode.STRANDED, False, f"{text}, but {facts.roles_text}"
    elif code is ExitCode.INCOMPLETE and facts.serving != [facts.wanted]:
        code = ExitCode.UNKNOWN if facts.serving else ExitCode.STRANDED
        text = f"{text}; {facts.roles_text}: look at {facts.wanted} first"
    if code is ExitCode.STRANDED and len(facts.serving) > 1:
        roles = "" if facts.roles_text in text else f"; {facts.roles_text}"
        code, text = ExitCode.UNKNOWN, f"{text}{roles}: look at {facts.spec.target} first"
    if code is not ExitCode.STRANDED:
        return End(code, text, undone)
    [by_hand] = with_queues([_by_hand(facts)], facts.spec)
    # STRANDED means that nobody serves, and INCOMPLETE that the target does: a source that serves in part is neither.
    if facts.serving == [facts.source] and facts.left_out:
        code, text = ExitCode.UNKNOWN, f"{text}: look at {facts.source} first"
    elif facts.serving == [facts.spec.target]:
        code = ExitCode.INCOMPLETE
    return End(code, text, undone, (by_hand,))


_IN_PLACE: Final[Mapping[str, str]] = {
    operations.RESTART: "the link of {} is attached",
    operations.TRIM: "the copies known to be processed are removed at {}",
    operations.KEEP_ASIDE: "the copies without evidence are kept aside at {}",
    operations.PUT_BACK: "the copies kept aside at {} are put back",
    operations.REHEARSE: "the rehearsal's messages went the whole path from {}",
    operations.REHEARSE_CLEAN: "no queue of a rehearsal is left",
}


_DID: Final[Mapping[str, str]] = {
    operations.SWAPOVER: "moved{named} from {source} to {target}",
    operations.FAILBACK: "moved{named} from {source} to {target}",
    operations.FAILOVER: "failed over{named} from {source} to {target}",
    operations.REINSTATE: "reinstated {target}",
    operations.QUIESCE: "quiesced {source}",
    operations.FENCE: "fenced {source}",
    operations.UNFENCE: "unfenced {source}",
    operations.DRAIN: "drained {source} to {target}",
    operations.ACTIVATE: "activated {target}",
    operations.RESTART: "restarted the link of {source}",
    operations.TRIM: "trimmed {source}",
    operations.KEEP_ASIDE: "kept aside the copies without evidence at {source}",
    operations.PUT_BACK: "put back the copies kept aside at {source}",
    operations.REHEARSE: "rehearsed from {source} to {target}",
    operations.REHEARSE_CLEAN: "removed the queues of rehearsals",
}


def did(operation: str, source: str, target: str, named: str = "") -> str:
    return _DID.get(operation, operation).format(source=source, target=target, named=named)


def _success(facts: Facts) -> tuple[ExitCode, str]:
    operation = facts.spec.operation
    if operation in operations.CLOSING:
        return _closed(facts)
    if operation in operations.IN_PLACE and sorted(facts.serving) == sorted(facts.before):
        trimmed = facts.outcome if operation == operations.TRIM else ""
        return ExitCode.OK, f"{trimmed or _IN_PLACE[operation].format(facts.source)}; {facts.roles_text}"
    only_target = facts.before == (facts.spec.target,) and facts.serving == [facts.spec.target]
    if operation == operations.UNFENCE and only_target:
        return ExitCode.OK, f"{facts.source} stays closed while {facts.spec.target} serves; its pauses are lifted"
    # A lost site with a fence debt is not proven closed, and a step at one site needs no closed other site.
    other_may_differ = operation == operations.FAILOVER or operation in operations.AT_SOURCE
    if facts.serving != [facts.wanted] or not (other_may_differ or facts.roles[facts.other] in CLOSED):
        first = facts.other if facts.serving == [facts.wanted] else facts.wanted
        return ExitCode.UNKNOWN, f"every step succeeded, but {facts.roles_text}: look at {first} first"
    if facts.missing:
        return ExitCode.INCOMPLETE, f"{facts.wanted} serves, but not {', '.join(facts.missing)}"
    most, limit_s = ("at most ", None) if facts.opened_unseen else ("", facts.spec.max_outage_s)
    out = f"; clients were out for {most}{facts.outage_s:.2f} s" if facts.outage_s is not None else ""
    out += f", longer than the {limit_s:g} s allowed" if out and limit_s and (facts.outage_s or 0) > limit_s else ""
    of = f" of{facts.named}" if facts.named else ""
    sentences = {
        operations.FAILOVER: f"{facts.serves(facts.wanted)}; {bounds_text(facts.bounds or {})}",
        operations.REINSTATE: f"{facts.other} is reinstated; {facts.wanted} serves",
        operations.QUIESCE: f"{facts.wanted} delivers nothing{of}, and its clients hold nothing{of}",
        operations.UNFENCE: facts.serves(facts.wanted, " again"),
    }
    sentence = sentences.get(operation, f"{facts.serves(facts.wanted)}; nothing{of} is under way{out}")
    if operation in (operations.SWAPOVER, operations.FAILBACK, operations.FAILOVER):
        sentence = f"{did(operation, facts.source, facts.spec.target, facts.named)}; verified: {sentence}"
    return ExitCode.OK, f"{sentence}{facts.goes_on}"


def _closed(facts: Facts) -> tuple[ExitCode, str]:
    """Judge a fence by its own site, a drain by both."""
    site = facts.source
    out = facts.roles[site] in CLOSED or (facts.cut_off and facts.roles[site] is not Role.SERVING)
    if facts.spec.operation == operations.FENCE:
        if out:
            clients = f"clients of{facts.named}" if facts.named else "clients"
            return ExitCode.OK, f"{clients} are kept out of {site}{facts.goes_on}"
    elif out and not facts.serving:
        target, of = facts.spec.target, f" of{facts.named}" if facts.named else ""
        after = f"`dr-ctl activate {target}{queues_option(facts.spec)}` is next"
        return ExitCode.OK, f"nothing{of} is under way to {target}; {after}{facts.goes_on}"
    return ExitCode.UNKNOWN, f"every step succeeded, but {facts.roles_text}: look at {site} first"


def bounds_text(bounds: Mapping[str, Any]) -> str:
    """Write the bounds as a sentence."""

    def at_most(key: str, noun: str) -> str:
        number, likely = (bounds.get(key, {}).get(name) for name in ("at_most", "likely"))
        first = "" if likely is None or likely == number else f"likely {likely}, "
        return f"an unknown number of {noun}s" if number is None else f"{first}at most {number} {noun}(s)"

    age_s = bounds.get("age_s") if bounds.get("lost", {}).get("at_most") else None
    age = f", the oldest of them up to {duration(age_s)} old" if age_s is not None else ""
    return f"{at_most('lost', 'message')} may be lost{age}; {at_most('duplicates', 'duplicate')} are possible"


def _by_hand(facts: Facts) -> Finding:
    source, target, serving = facts.source, facts.spec.target, facts.serving
    if facts.spec.operation == operations.FAILOVER:
        return found("DR-RUN-001.failover", target=target, roles=facts.roles_text)
    if serving == [source] and facts.left_out:
        return found("DR-RUN-001.partly_served", source=source, left_out=", ".join(facts.left_out))
    if serving == [source]:
        return found("DR-RUN-001.served", source=source)
    if serving == [target] and facts.before == (target,):
        return found("DR-RUN-001.client_at_source", source=source, target=target)
    if serving == [target]:
        return found("DR-RUN-001.target_open", source=source, target=target)
    if facts.roles[source] is Role.DOWN:
        return found("DR-RUN-001.source_down", roles=facts.roles_text, by_hand=facts.by_hand)
    return found("DR-RUN-001.none", roles=facts.roles_text, source=source, target=target, by_hand=facts.by_hand)
