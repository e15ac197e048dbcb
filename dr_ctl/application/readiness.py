"""What speaks against each operation, and whether the gate holds now: `validate` and `verify`. Both only look."""

from __future__ import annotations

from collections.abc import Sequence

from dr_ctl.application import lock
from dr_ctl.application.caller import Caller
from dr_ctl.application.result import Result
from dr_ctl.application.status import silent
from dr_ctl.application.world import World
from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.engine.onlooker import Onlooker
from dr_ctl.engine.operations import RETURNS, VERIFY, WHOLE
from dr_ctl.engine.outcome import Done, Unknown
from dr_ctl.engine.plan import Ask, Decision, PlannedStep, Refusal
from dr_ctl.engine.ports import Move
from dr_ctl.engine.roles import error
from dr_ctl.topologies.topology import Seen

VERIFY_S = 5.0
_UNANSWERED = (Role.UNKNOWN, Role.SICK, Role.DOWN)


def validate(caller: Caller, operation: str | None) -> Result:
    """All findings once, then for each operation: ready, not ready, or unknown where a site did not answer."""
    if operation is not None and operation not in WHOLE:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(WHOLE)}.")
    with World.of(caller) as world:
        seen, recipe = world.look(None), world.topology.recipe
        target = _target(seen)
        other = world.other(target)
        decided = world.decide(Ask("swapover", target), seen)
        # Where the roles alone refuse it, what the brokers say of themselves is worth as much.
        against = recipe.why_not(seen, Move(Ask("swapover", target), other, {}))
        unheard = _unheard(world, seen)
        findings = list(dict.fromkeys([*decided.findings, *against, *unheard, *lock.forbidden(world, seen)]))
        lost = Move(Ask("failover", target), other, {})
        against = [each for each in (*recipe.why_not(seen, lost), *unheard) if each.id != "DR-ALIVE-001"]
        returns = {name: world.decide(Ask(name, target), seen) for name in RETURNS}
    is_silent = any(role in _UNANSWERED for role in seen.roles.values())
    verdicts = {"swapover": _verdict(decided, is_silent=is_silent)}
    verdicts |= {"failover": _without_the_other(seen, target, against)}
    verdicts |= {name: _verdict(each, is_silent=is_silent) for name, each in returns.items()}
    if operation is not None:
        verdicts = {operation: verdicts[operation]}
        of = {"swapover": findings, "failover": against, **{name: [*each.findings] for name, each in returns.items()}}
        findings = of[operation]
    data: dict[str, Json] = {
        "operations": {name: {"to": target, "verdict": verdict} for name, (verdict, _) in verdicts.items()},
        "pairs": [unit.as_json() for unit in seen.units],
        "fence": {site: seen.fence_strength(site) for site in seen.roles},
    }
    text = ", ".join(f"{name} to {target}: {verdict}" for name, (verdict, _) in verdicts.items())
    return Result(next(iter(verdicts.values()))[1], text, findings, data)


def _unheard(world: World, seen: Seen) -> list[Finding]:
    """The sites that serve by their flags, and where no client is greeted: what shows later that one is down was never
    seen to be up."""
    found = []
    for site in [site for site, role in seen.roles.items() if role is Role.SERVING]:
        try:
            why = world.topology.why_not_so(site, serving=True)
        except BrokerError as told:
            why = str(told)
        if why is not None:
            text = f"{site} serves by the flags of its doors, but {why}"
            remedy = "Is `stomp:` an address of its clients' door, and may that user connect?"
            found.append(Finding("DR-DOOR-010", Severity.WARNING, text, remedy))
    return found


def _verdict(decided: Decision, *, is_silent: bool) -> tuple[str, ExitCode]:
    """Where it holds already there is nothing that speaks against it."""
    if isinstance(decided, Refusal):
        return ("unknown", ExitCode.UNKNOWN) if is_silent else ("not ready", ExitCode.PRECHECK_FAILED)
    return "ready", ExitCode.OK


def _target(seen: Seen) -> str:
    """Where a move would go: the site that waits; without one, a site that does not serve."""
    serving = [site for site, role in seen.roles.items() if role is Role.SERVING]
    others = [site for site in seen.roles if site not in serving[:1]]
    return next((site for site in others if seen.roles[site] is Role.STANDBY), others[0])


def _without_the_other(seen: Seen, target: str, against: Sequence[Finding]) -> tuple[str, ExitCode]:
    """Whether the target could serve if the other site were lost: it does not depend on that site being up."""
    if any(each.severity is Severity.ERROR for each in against):
        return "not ready", ExitCode.PRECHECK_FAILED
    known = seen.roles[target] in (Role.STANDBY, Role.SERVING)
    return ("ready", ExitCode.OK) if known else ("unknown", ExitCode.UNKNOWN)


def verify(caller: Caller, asked: Ask) -> Result:
    """The whole gate over its window, without a run. What lets clients in is said at once, not waited for."""
    with World.of(caller) as world:
        world.must_know(asked)
        seen = world.look(None)
        roles = ", ".join(f"{site} is {role.value}" for site, role in seen.roles.items())
        data: dict[str, Json] = {"pairs": [unit.as_json() for unit in seen.units]}
        if any(role in _UNANSWERED for role in seen.roles.values()):
            return Result(ExitCode.UNKNOWN, f"the gate cannot be looked at: {roles}", silent(seen), data)
        if open_at := [site for site, role in seen.roles.items() if role is Role.SERVING]:
            text = f"the gate is shut: {roles}"
            finding = error(
                "DR-VERIFY-001", text, f"`dr-ctl fence {open_at[0]}`, then `dr-ctl drain --to {asked.target}`."
            )
            return Result(ExitCode.PRECHECK_FAILED, text, (finding,), data)
        limits = {"within": asked.timeout_s or VERIFY_S, "stable": float(world.installation.settings.drain.stable)}
        step = PlannedStep(1, VERIFY, asked.target, "the whole gate", limits=limits)
        hand = Onlooker(caller.clock, caller.listener())
        outcome = world.topology.driver().apply(step, Move(asked, world.other(asked.target), {}), hand)
    data["gate"] = {"text": outcome.text, **outcome.evidence}
    if isinstance(outcome, Unknown):
        return Result(ExitCode.UNKNOWN, outcome.text, outcome.findings, data)
    code = ExitCode.OK if isinstance(outcome, Done) else ExitCode.PRECHECK_FAILED
    return Result(code, outcome.text, outcome.findings, data)
