"""`status` and `validate`: what is, and what speaks against each operation. Both only look."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from dr_ctl.cli import locking
from dr_ctl.cli.estimates import with_age
from dr_ctl.cli.owed import owed
from dr_ctl.cli.render import end
from dr_ctl.cli.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.cli.wiring import World
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.journal import is_held
from dr_ctl.engine.operations import RETURNS, WHOLE
from dr_ctl.engine.outcome import Done, Unknown
from dr_ctl.engine.plan import Ask, Decision, Refusal
from dr_ctl.engine.ports import Move
from dr_ctl.engine.roles import both_open, error, is_split, split
from dr_ctl.engine.runs import RunFiles
from dr_ctl.topologies.common import checks
from dr_ctl.topologies.common.names import QUARANTINE_PREFIX
from dr_ctl.topologies.common.view import Broker, Seen, Silent
from dr_ctl.topologies.registry import Topology

WATCH_EVERY_S = 2.0
VERIFY_S = 5.0
_UNANSWERED = (Role.UNKNOWN, Role.SICK, Role.DOWN)


def status(session: Session) -> Result:
    installation = session.installation()
    with World.of(installation, time.sleep) as world:
        before, seen, took_s = world.observer.observe_twice()
    links = [
        world.topology.link(view, before.view(site, view.pair), took_s)
        for site in seen.sites
        for view in seen.views(site)
    ]
    unfinished = session.runs().unfinished()
    is_alive = unfinished is not None and is_held(unfinished.journal)
    if unfinished is not None and not is_alive and not unfinished.open():
        unfinished = None  # it ended between the two looks at it
    answered = any(isinstance(view, Broker) for brokers in seen.sites.values() for view in brokers.values())
    serving = [site for site, role in seen.roles.items() if role is Role.SERVING]
    findings = [*_broken(seen), *_quarantined(seen), *_silent(seen), *_open_run(unfinished, is_alive=is_alive)]
    findings += [*locking.holders(seen), *_pauses(seen), *_not_one(seen, unfinished, is_alive=is_alive)]
    estimated, line, stale = with_age(installation, serving[0]) if len(serving) == 1 else (None, "", [])
    findings += stale
    data: dict[str, Json] = {
        "sites": {site: {"role": role.value} for site, role in seen.roles.items()},
        "pairs": [pair.as_json() for pair in seen.pairs],
        "links": [*links],
        "open_run": unfinished.name if unfinished is not None else None,
        "locks": locking.shown(seen),
        "estimate": estimated,
    }
    if not answered:
        summary, code = "no site answered", ExitCode.UNKNOWN
    elif len(serving) == 1:
        summary, code = f"{serving[0]} serves", ExitCode.OK
    else:
        summary, code = "both sites let clients in" if serving else "no site serves", ExitCode.OK
    debts = owed(session.state(), seen.debts, [site for site in seen.sites if seen.views(site)])
    return Result(
        code,
        summary,
        findings,
        data,
        text="\n".join(filter(None, (_text(seen, links, world.topology), line))),
        debts=debts,
    )


def watch(session: Session) -> Result:
    """The status again and again; each is a whole document or screen. Ends with Ctrl-C."""
    while True:
        end(status(session), session)
        time.sleep(WATCH_EVERY_S)


def _text(seen: Seen[Broker], links: Sequence[Mapping[str, Json]], topology: Topology) -> str:
    told = {(each["from"], each["pair"]): topology.lines(each) for each in links}
    lines = []
    for site, brokers in seen.sites.items():
        lines.append(f"{site:<16} {seen.roles[site].value}")
        for view in brokers.values():
            if isinstance(view, Silent):
                lines.append(f"  {view.pair}: {view.error}")
                continue
            doors = ", ".join(f"{door.name} {'open' if door.started else 'closed'}" for door in view.doors)
            doors += ", and roles kept out" if view.shut_out else ""
            depth = sum(queue.depth for queue in view.business.values())
            lines.append(f"  {view.pair}: {doors}; {depth} message(s) in {len(view.business)} queue(s)")
            lines += [f"    {line}" for line in told[site, view.pair]]
    return "\n".join(lines)


def _broken(seen: Seen[Broker]) -> Iterator[Finding]:
    """What is owed and came about all the same: a lost site that serves again, a quarantine that a restart ended."""
    for debt in seen.debts:
        if debt.kind is DebtKind.FENCE and seen.roles.get(debt.about) is Role.SERVING:
            text = f"{debt.about} was lost and is open again, beside {debt.kept_at}"
            remedy = f"`dr-ctl reinstate {debt.about}` closes it at once, says what it did meanwhile, and takes it in."
            yield Finding("DR-RETURN-003", Severity.ERROR, text, remedy)
        open_doors = [door.name for view in seen.views(debt.kept_at) for door in view.mirror_doors if door.started]
        if debt.kind is DebtKind.QUARANTINE and open_doors:
            text = (
                f"acceptor {', '.join(open_doors)} at {debt.kept_at} is open: what {debt.about} still holds can come in"
            )
            remedy = f"Stop that acceptor while {debt.about} is away; `dr-ctl reinstate {debt.about}` once it is back."
            yield Finding("DR-RETURN-004", Severity.WARNING, text, remedy)


def _quarantined(seen: Seen[Broker]) -> Iterator[Finding]:
    """What a return took out because nothing explained it, until a person has looked at it."""
    for site in seen.sites:
        for view in seen.views(site):
            for queue in view.queues:
                if queue.name.startswith(QUARANTINE_PREFIX) and queue.depth:
                    text = f"{site}/{view.pair}: {queue.depth} message(s) in {queue.name} that nothing explained"
                    remedy = "Move back by hand what was never done; then remove that queue."
                    yield Finding("DR-RECONCILE-003", Severity.WARNING, text, remedy)


def _silent(seen: Seen[Broker]) -> list[Finding]:
    return [
        Finding(
            "DR-SITE-001", Severity.WARNING, f"{site}/{view.pair} is {view.role.value}: {view.error}", view.error.remedy
        )
        for site, brokers in seen.sites.items()
        for view in brokers.values()
        if isinstance(view, Silent)
    ]


def _not_one(seen: Seen[Broker], unfinished: RunFiles | None, *, is_alive: bool) -> Iterator[Finding]:
    """Clients are served by both sites, or by none, and what to type then."""
    serving = [site for site, role in seen.roles.items() if role is Role.SERVING]
    waiting = [site for site, role in seen.roles.items() if role is Role.STANDBY]
    told = ", ".join(f"{site} is {role.value}" for site, role in seen.roles.items())
    lost = [debt.about for debt in seen.debts if debt.kind is DebtKind.FENCE]
    if any(len(pair.open_at) > 1 for pair in seen.pairs) and not {*lost} & {*serving}:
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
        yield Finding("DR-ROLE-016", Severity.WARNING, f"nobody was seen to be served: {told}", remedy)


def _open_run(unfinished: RunFiles | None, *, is_alive: bool) -> list[Finding]:
    if unfinished is None:
        return []
    if is_alive:
        text, remedy = f"the run {unfinished.name} is under way", "`dr-ctl runs show --follow` shows it as it goes."
        return [Finding("DR-RUN-003", Severity.INFO, text, remedy)]
    text = f"the run {unfinished.name} was interrupted and is open"
    return [Finding("DR-RUN-003", Severity.WARNING, text, "`dr-ctl resume` goes on with it, `dr-ctl abort` undoes it.")]


def _pauses(seen: Seen[Broker]) -> list[Finding]:
    found = []
    for site in seen.sites:
        for view in seen.views(site):
            paused = sorted(queue.name for queue in view.business.values() if queue.paused)
            by = locking.pausers(seen, view)
            for run in sorted({by.get(name, "") for name in paused}):
                names = [name for name in paused if by.get(name, "") == run]
                text = f"{site}/{view.pair}: paused{' by ' + run if run else ''}: {checks.some(names)}"
                found.append(Finding("DR-QUEUE-001", Severity.INFO, text))
    return found


def validate(session: Session, operation: str | None) -> Result:
    """All findings once, then for each operation: ready, not ready, or unknown where a site did not answer."""
    if operation is not None and operation not in WHOLE:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(WHOLE)}.")
    with World.of(session.installation(), time.sleep) as world:
        seen = world.observer.observe()
        target = _target(seen)
        other = next(site for site in seen.roles if site != target)
        decided = world.decide(Ask("swapover", target), seen)
        # Where the roles alone refuse it, what the brokers say of themselves is worth as much.
        against = world.recipe.why_not(seen, Move(Ask("swapover", target), other, {}))
        findings = list(dict.fromkeys([*decided.findings, *against, *locking.forbidden(world, seen)]))
        lost = Move(Ask("failover", target), other, {})
        against = [each for each in world.recipe.why_not(seen, lost) if each.id != "DR-ALIVE-001"]
        returns = {name: world.decide(Ask(name, target), seen) for name in RETURNS}
    silent = any(role in _UNANSWERED for role in seen.roles.values())
    verdicts = {"swapover": _verdict(decided, silent=silent), "failover": _without_the_other(seen, target, against)}
    verdicts |= {name: _verdict(each, silent=silent) for name, each in returns.items()}
    if operation is not None:
        verdicts = {operation: verdicts[operation]}
        of = {"swapover": findings, "failover": against, **{name: [*each.findings] for name, each in returns.items()}}
        findings = of[operation]
    data: dict[str, Json] = {
        "operations": {name: {"to": target, "verdict": told} for name, (told, _) in verdicts.items()},
        "pairs": [pair.as_json() for pair in seen.pairs],
        "fence": {site: _strength(seen, site) for site in seen.sites},
    }
    text = ", ".join(f"{name} to {target}: {told}" for name, (told, _) in verdicts.items())
    return Result(next(iter(verdicts.values()))[1], text, findings, data)


def _verdict(decided: Decision, *, silent: bool) -> tuple[str, ExitCode]:
    """Where it holds already there is nothing that speaks against it."""
    if isinstance(decided, Refusal):
        return ("unknown", ExitCode.UNKNOWN) if silent else ("not ready", ExitCode.PRECHECK_FAILED)
    return "ready", ExitCode.OK


def verify(session: Session, asked: Ask) -> Result:
    """The whole gate over its window, without a run. What lets clients in is said at once, not waited for."""
    with World.of(session.installation(), time.sleep) as world:
        world.must_know(asked)
        seen = world.observer.observe()
        source = next(site for site in seen.roles if site != asked.target)
        told = ", ".join(f"{site} is {role.value}" for site, role in seen.roles.items())
        data: dict[str, Json] = {"pairs": [pair.as_json() for pair in seen.pairs]}
        if any(role in _UNANSWERED for role in seen.roles.values()):
            return Result(ExitCode.UNKNOWN, f"the gate cannot be looked at: {told}", _silent(seen), data)
        if open_at := [site for site, role in seen.roles.items() if role is Role.SERVING]:
            text = f"the gate is shut: {told}"
            finding = error(
                "DR-VERIFY-001", text, f"`dr-ctl fence {open_at[0]}`, then `dr-ctl drain --to {asked.target}`."
            )
            return Result(ExitCode.PRECHECK_FAILED, text, (finding,), data)
        outcome = world.verify(Move(asked, source, {}), session.listener(), asked.timeout_s or VERIFY_S)
    data["gate"] = {"text": outcome.text, **outcome.evidence}
    if isinstance(outcome, Unknown):
        return Result(ExitCode.UNKNOWN, outcome.text, outcome.findings, data)
    code = ExitCode.OK if isinstance(outcome, Done) else ExitCode.PRECHECK_FAILED
    return Result(code, outcome.text, outcome.findings, data)


def _target(seen: Seen[Broker]) -> str:
    """Where a move would go: the site that waits; without one, a site that does not serve."""
    serving = [site for site, role in seen.roles.items() if role is Role.SERVING]
    others = [site for site in seen.roles if site not in serving[:1]]
    return next((site for site in others if seen.roles[site] is Role.STANDBY), others[0])


def _strength(seen: Seen[Broker], site: str) -> str | None:
    """What a fence of a site can be: closed now, or also after a restart of its brokers. None where it is not known."""
    views = seen.views(site)
    if len(views) < len(seen.sites[site]):
        return None
    lasts = [True if view.config.lasting is not None else view.boots_closed for view in views]
    if None in lasts:
        return None
    return "lasting" if all(lasts) else "now"


def _without_the_other(seen: Seen[Broker], target: str, against: Sequence[Finding]) -> tuple[str, ExitCode]:
    """Whether the target could serve if the other site were lost: it does not depend on that site being up."""
    if any(each.severity is Severity.ERROR for each in against):
        return "not ready", ExitCode.PRECHECK_FAILED
    known = seen.roles[target] in (Role.STANDBY, Role.SERVING)
    return ("ready", ExitCode.OK) if known else ("unknown", ExitCode.UNKNOWN)
