"""Turns the options of a command into an `Ask`, moments and durations among them; a malformed option is a usage error
with its remedy."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import assert_never

from dr_ctl.application.run_options import Accepted, BreakLock, RunOptions
from dr_ctl.cli.options import (
    AskOptions,
    ChangeOptions,
    DrainOptions,
    FailoverOptions,
    LostSiteOptions,
    MoveOptions,
    PlanOptions,
    SiteOptions,
    StepOptions,
    StepwiseOptions,
    WholeOptions,
)
from dr_ctl.cli.session import Session
from dr_ctl.core.clock import stamp
from dr_ctl.core.errors import UsageError
from dr_ctl.engine.operations import ALL, AT_SOURCE, FAILBACK, FAILOVER, KEEP_ASIDE, PUT_BACK, SWAPOVER
from dr_ctl.engine.plan import Ask
from dr_ctl.settings.durations import seconds


def asked(session: Session, operation: str, options: AskOptions, reason: str | None) -> Ask:
    """Make the question out of the options; raises `UsageError` where one is not well formed."""
    timeout_s = seconds_of("--timeout", options.timeout)
    match options:
        case PlanOptions():
            return _planned(session, options, timeout_s)
        case SiteOptions():
            return Ask(operation, _target(session, operation, options.site), timeout_s, reason=reason)
        case LostSiteOptions():
            doubles = accepted("--accept-duplicates", options.accept_duplicates)
            target = _target(session, operation, options.site)
            return Ask(operation, target, timeout_s, reason=reason, accept_duplicates=doubles)
        case StepOptions(queues=queues):
            return Ask(operation, _target(session, operation, options.site), timeout_s, reason=reason, queues=queues)
        case FailoverOptions():
            doubles = accepted("--accept-duplicates", options.accept_duplicates)
            asked = Ask(operation, options.to, timeout_s, reason=reason, accept_duplicates=doubles)
            return _priced(session, asked, options)
        case DrainOptions() | MoveOptions():
            asked = Ask(
                operation,
                options.to,
                timeout_s,
                accept_difference=_accepted(options.accept_difference or ()),
                reason=reason,
                queues=options.queues,
                accept_duplicates=accepted("--accept-duplicates", options.accept_duplicates),
            )
            return _bounded(session, asked, options) if isinstance(options, MoveOptions) else asked
        case _:
            assert_never(options)


def _planned(session: Session, options: PlanOptions, timeout_s: float | None) -> Ask:
    operation = _whole(options.operation)
    made = Ask(
        operation,
        _target(session, operation, _named(options.to, options.site)),
        timeout_s,
        accept_difference=_accepted(options.accept_difference or ()),
        expect_serving=options.expect_serving,
        reason=options.reason,
        queues=options.queues,
        accept_duplicates=accepted("--accept-duplicates", options.accept_duplicates),
    )
    return _priced(session, made, options) if operation == FAILOVER else _bounded(session, made, options)


def _bounded(session: Session, made: Ask, options: MoveOptions | PlanOptions) -> Ask:
    """A planned move, which has a bound on the outage also where none was given."""
    limit_s = _outage_s(session, options.max_outage) if made.operation in (SWAPOVER, FAILBACK) else None
    return replace(made, cut_in_flight=options.cut_in_flight, max_outage_s=limit_s)


def _priced(session: Session, made: Ask, options: FailoverOptions | PlanOptions) -> Ask:
    """A failover, with what is accepted of it and what a person knows of the lost site."""
    if options.presume_down is not None and not made.reason:
        raise UsageError("--presume-down needs --reason", remedy="Say why that site is taken for down: --reason TEXT.")
    if options.silent_since is not None and not made.reason:
        raise UsageError("--silent-since needs --reason", remedy="Say how that moment is known: --reason TEXT.")
    ended = moment(session, "--silent-since", options.silent_since)
    return replace(
        made,
        accept_loss=accepted("--accept-loss", options.accept_loss),
        presume_down=options.presume_down,
        silent_since=stamp(ended) if ended is not None else None,
    )


def _whole(operation: str) -> str:
    """The operation that was named, where it is a whole one; raises `UsageError`."""
    if operation not in ALL:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(ALL)}.")
    return operation


def accepted(option: str, given: str | None) -> Accepted:
    """How much somebody accepts; raises `UsageError`."""
    if given is None or given == "unknown":
        return "unknown" if given else None
    if not given.isdecimal():
        raise UsageError(f"{option} {given}: not a number", remedy=f"As in {option} 500, or unknown.")
    return int(given)


def _named(to: str | None, site: str | None) -> str:
    """The site, however it was named; raises `UsageError`."""
    if to is not None and site is not None and to != site:
        raise UsageError(f"--to {to} and {site}: two sites were named", remedy="Name one of them.")
    if (named := to or site) is None:
        raise UsageError("no site was named", remedy="Say --to SITE.")
    return named


def _target(session: Session, operation: str, named: str) -> str:
    """The site that shall serve. Of a step that is done at the site it names that is the other one."""
    if operation not in AT_SOURCE:
        return named
    sites = list(session.installation().settings.sites)
    if named not in sites:
        raise UsageError(f"no site {named} in the settings", remedy=f"The sites are {' and '.join(sites)}.")
    return next(each for each in sites if each != named)


def _accepted(differences: Sequence[str]) -> dict[str, int]:
    accepted: dict[str, int] = {}
    for each in differences:
        queue, equals, number = each.rpartition("=")
        if not (equals and queue and number.isdecimal()):
            raise UsageError(
                f"--accept-difference {each}: not QUEUE=N", remedy="As in --accept-difference orders.in=3."
            )
        accepted[queue] = int(number)
    return accepted


def run_options(options: ChangeOptions) -> RunOptions:
    """How it is to be run; raises `UsageError` where the options contradict each other, or lack a reason."""
    step = isinstance(options, StepwiseOptions) and options.step
    saved = options.saved if isinstance(options, WholeOptions) else None
    if step and options.yes:
        raise UsageError("--step asks before each step, --yes asks nothing", remedy="Leave one of them out.")
    if options.break_lock and not options.reason:
        raise UsageError(
            "--break-lock needs --reason", remedy="Say why the other run is certain to be gone: --reason TEXT."
        )
    break_lock = BreakLock(options.break_lock, options.reason)
    return RunOptions(options.yes, options.dry_run, step, break_lock, saved, options.expect_serving)


def settling(session: Session, how: RunOptions, site: str | None, queues: str | None, *, put_back: bool) -> Ask:
    """The question of `sync --settle`; raises `UsageError` where it names no site, or would change something without a
    reason."""
    if site is None:
        raise UsageError("--settle names no site", remedy="Say --site SITE: the site where the copies lie.")
    if how.break_lock.reason is None and not how.dry_run:
        raise UsageError("--settle needs --reason", remedy="Say what you know of them: --reason TEXT.")
    operation = PUT_BACK if put_back else KEEP_ASIDE
    return asked(session, operation, StepOptions(site, queues=queues), how.break_lock.reason)


def _outage_s(session: Session, max_outage: str | None) -> float | None:
    """The value of --max-outage in seconds; without it the planned time to recovery, where the settings have one."""
    limit_s = seconds_of("--max-outage", max_outage)
    objectives = session.installation().settings.objectives
    return limit_s if limit_s is not None or objectives is None else objectives.recovery


def moment(session: Session, option: str, value: str | None) -> datetime | None:
    """The value of an option that is a moment, a time of the last 24 hours, or a duration back from now; UTC where no
    zone is named. Raises `UsageError`."""
    if value is None:
        return None
    try:
        return session.clock.now() - timedelta(seconds=seconds(value))
    except ValueError:
        pass
    now = session.clock.now()
    with suppress(ValueError):
        told = time.fromisoformat(value)
        today = datetime.combine(now.astimezone(told.tzinfo or UTC).date(), told, told.tzinfo or UTC)
        return (today if today <= now else today - timedelta(days=1)).astimezone(UTC)
    try:
        at = datetime.fromisoformat(value)
    except ValueError as problem:
        remedy = f"As in {option} 09:15 or 2026-11-21T09:15:00Z, both in UTC, or {option} 10m for ten minutes ago."
        raise UsageError(f"{option} {value}: neither a moment nor a duration", remedy=remedy) from problem
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    if at > session.clock.now():
        raise UsageError(f"{option} {value}: lies in the future", remedy=f"It is {stamp(session.clock.now())} now.")
    return at.astimezone(UTC)


def seconds_of(option: str, value: str | None) -> float | None:
    """The value of an option that is a duration; raises `UsageError`."""
    if value is None:
        return None
    try:
        return seconds(value)
    except ValueError as problem:
        raise UsageError(f"{option}: {problem}", remedy=f"As in {option} 90s.") from problem
