"""What is: who serves, what is under way between the sites, what stands open, and what to type then. Only looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dr_ctl.application import lock
from dr_ctl.application.caller import Caller
from dr_ctl.application.debts import owed_now
from dr_ctl.application.estimates import with_age
from dr_ctl.application.result import Result
from dr_ctl.application.world import World
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity, some
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.journal import is_held
from dr_ctl.engine.roles import both_open, is_split, split
from dr_ctl.engine.runs import RunFiles
from dr_ctl.topologies.topology import LinkSeen, Seen


@dataclass(frozen=True, slots=True)
class Status:
    """What was seen, for people, beside the result that scripts read; `estimate` is the line of the stored one."""

    result: Result
    seen: Seen
    links: Sequence[LinkSeen]
    estimate: str


def status(caller: Caller) -> Status:
    """Look twice, so that rates are known."""
    with World.of(caller) as world:
        seen: Seen = world.topology.look(over_s=caller.patience.rates_s)
        unverified = world.unverified()
    links = seen.links()
    unfinished = caller.runs().unfinished()
    is_alive = unfinished is not None and is_held(unfinished.journal)
    if unfinished is not None and not is_alive and not unfinished.open():
        unfinished = None  # it ended between the two looks at it
    serving = [site for site, role in seen.roles.items() if role is Role.SERVING]
    findings = [
        *_open_again(seen, None if is_alive else unfinished),
        *seen.findings(),
        *silent(seen),
        *unverified,
        *_open_run(unfinished, is_alive=is_alive),
    ]
    findings += [*lock.holders(seen), *_pauses(seen), *_not_one(seen, unfinished, is_alive=is_alive)]
    estimated, line, stale = with_age(world.installation, serving[0]) if len(serving) == 1 else (None, "", [])
    data: dict[str, Json] = {
        "sites": {site: {"role": role.value} for site, role in seen.roles.items()},
        "pairs": [unit.as_json() for unit in seen.units],
        "links": [link.as_json() for link in links],
        "open_run": unfinished.name if unfinished is not None else None,
        "locks": lock.shown(seen),
        "estimate": estimated,
    }
    if all(each.silent is not None for each in seen.brokers):
        summary, code = "no site answered", ExitCode.UNKNOWN
    elif len(serving) == 1:
        summary, code = f"{serving[0]} serves", ExitCode.OK
    else:
        summary, code = "both sites let clients in" if serving else "no site serves", ExitCode.OK
    debts = owed_now(caller, seen)
    result = Result(code, summary, [*findings, *stale, *debts.findings], data, debts=debts.debts)
    return Status(result, seen, links, line)


def silent(seen: Seen) -> list[Finding]:
    """The brokers that did not answer, and how they failed."""
    return [
        Finding(
            "DR-SITE-001",
            Severity.WARNING,
            f"{each.site}/{each.pair} is {each.role.value}: {each.silent}",
            each.silent.remedy,
        )
        for each in seen.brokers
        if each.silent is not None
    ]


def _open_again(seen: Seen, unfinished: RunFiles | None) -> Iterator[Finding]:
    """A lost site that serves again although it was to be kept closed. Beside an open run nothing else begins than what
    closes a site."""
    for debt in seen.debts:
        if debt.kind is DebtKind.FENCE and seen.roles.get(debt.about) is Role.SERVING:
            text = f"{debt.about} was lost and is open again, beside {debt.kept_at}"
            remedy = f"`dr-ctl reinstate {debt.about}` closes it at once, says what it did meanwhile, and takes it in."
            if unfinished is not None:
                remedy = f"`dr-ctl fence {debt.about}` closes it at once; then `dr-ctl resume` ends {unfinished.name}."
            yield Finding("DR-RETURN-003", Severity.ERROR, text, remedy)


def _not_one(seen: Seen, unfinished: RunFiles | None, *, is_alive: bool) -> Iterator[Finding]:
    """Clients are served by both sites, or by none, and what to type then."""
    serving = [site for site, role in seen.roles.items() if role is Role.SERVING]
    waiting = [site for site, role in seen.roles.items() if role is Role.STANDBY]
    roles = ", ".join(f"{site} is {role.value}" for site, role in seen.roles.items())
    lost = [debt.about for debt in seen.debts if debt.kind is DebtKind.FENCE]
    if any(len(unit.open_at) > 1 for unit in seen.units) and not {*lost} & {*serving}:
        yield both_open(seen)
    elif is_split(seen):
        remedy = "`dr-ctl fence SITE` keeps clients out of one of them; then `dr-ctl swapover` brings all to the other."
        yield split(seen, remedy)
    elif not serving and len(waiting) == len(seen.roles):
        remedy = "`dr-ctl activate SITE` opens one; without a receipt only where nothing is under way between them."
        if is_alive:
            remedy = "The run that is under way opens its target, or what served before."
        elif unfinished is not None:
            remedy = "The open run: `dr-ctl resume` opens its target, `dr-ctl abort` what served before."
        text = f"{' and '.join(seen.roles)} are up and closed: nobody is served"
        yield Finding("DR-ROLE-015", Severity.WARNING, text, remedy)
    elif not serving and waiting and not is_alive:
        away = next(site for site in seen.roles if site != waiting[0])
        reason = " --reason TEXT" if unfinished is not None else ""
        remedy = f"If {away} is lost: `dr-ctl failover --to {waiting[0]}{reason} --dry-run` says what that costs."
        yield Finding("DR-ROLE-016", Severity.WARNING, f"nobody was seen to be served: {roles}", remedy)


def _open_run(unfinished: RunFiles | None, *, is_alive: bool) -> list[Finding]:
    if unfinished is None:
        return []
    if is_alive:
        text, remedy = f"the run {unfinished.name} is under way", "`dr-ctl runs show --follow` shows it as it goes."
        return [Finding("DR-RUN-003", Severity.INFO, text, remedy)]
    text = f"the run {unfinished.name} was interrupted and is open"
    return [Finding("DR-RUN-003", Severity.WARNING, text, "`dr-ctl resume` goes on with it, `dr-ctl abort` undoes it.")]


def _pauses(seen: Seen) -> list[Finding]:
    found = []
    for each in seen.brokers:
        by = lock.pausers(seen, each)
        for run in sorted({by.get(name, "") for name in each.paused}):
            names = [name for name in each.paused if by.get(name, "") == run]
            text = f"{each.site}/{each.pair}: paused{' by ' + run if run else ''}: {some(names)}"
            found.append(Finding("DR-QUEUE-001", Severity.INFO, text))
    return found
