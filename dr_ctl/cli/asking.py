"""Turns the options of a command into a `Spec`, moments and durations among them; a malformed option is a usage error
with its remedy."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

from dr_ctl.cli.options import FIELDS
from dr_ctl.cli.session import Session
from dr_ctl.core.document import stamp
from dr_ctl.core.errors import UsageError
from dr_ctl.core.notation import seconds
from dr_ctl.engine.operations import ALL, AT_SOURCE, FAILBACK, FAILOVER, KEEP_ASIDE, PUT_BACK, REINSTATE, SWAPOVER
from dr_ctl.engine.plan import Accepted, RunOptions, Spec

_LOSS: Final = ("accept_loss", "presume_down", "silent_since")
_OTHERS: Final = {FAILOVER: ("max_outage_s", "cut_in_flight"), REINSTATE: ("max_outage_s", *_LOSS)}
"""What `plan` takes for other operations than this one."""


def asked(session: Session, operation: str, given: Mapping[str, Any], reason: str | None) -> Spec:
    """Make the question out of the options; raises `UsageError` where one is not well formed."""
    operation = given.get("operation", operation)
    if "operation" in given and operation not in ALL:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(ALL)}.")
    without = ("operation", "to", "site", *(_OTHERS.get(operation, _LOSS) if "operation" in given else ()))
    read = {name: _read(session, name, value) for name, value in given.items() if name not in without}
    options = {"reason": reason} | read
    for name, say in (
        ("presume_down", "why that site is taken for down"),
        ("silent_since", "how that moment is known"),
    ):
        if options.get(name) is not None and not options["reason"]:
            raise UsageError(f"--{name.replace('_', '-')} needs --reason", remedy=f"Say {say}: --reason TEXT.")
    if operation in (SWAPOVER, FAILBACK) and options["max_outage_s"] is None:
        objectives = session.installation().settings.objectives
        options["max_outage_s"] = objectives.recovery if objectives is not None else None
    return Spec(operation, _target(session, operation, given), **options)


def _read(session: Session, name: str, value: Any) -> Any:
    option, _, word = FIELDS[name]["typed"].partition(" ")
    match word:
        case "QUEUE=N":
            return _differences(option, value or ())
        case "N|unknown" if value is not None:
            return _accepted(option, value)
        case "T" if value is not None and name == "silent_since":
            return stamp(moment(session, option, value))
        case "T" if value is not None:
            return seconds_of(option, value)
        case _:
            return value


def _target(session: Session, operation: str, given: Mapping[str, str | None]) -> str:
    """The site that shall serve: of a step at the site it names the other one; "" where none is named."""
    to, site = given.get("to"), given.get("site")
    if to is not None and site is not None and to != site:
        raise UsageError(f"--to {to} and {site}: two sites were named", remedy="Name one of them.")
    if (named := to or site) is None:
        if "site" in given:
            raise UsageError("no site was named", remedy="Say --to SITE.")
        return ""
    if operation not in AT_SOURCE:
        return named
    session.installation().must_know(named)
    return session.installation().other(named)


def run_options(session: Session, given: Mapping[str, Any]) -> RunOptions:
    """How it is to be run; raises `UsageError` where the options contradict each other, or lack a reason."""
    how = RunOptions(**given)
    if given.get("at") is not None:
        how = replace(how, at=moment(session, "--at", given["at"], ahead=True))
    if how.step and (how.at is not None or how.yes):
        other = "--yes asks nothing" if how.at is None else "--at waits for nobody"
        raise UsageError(f"--step asks before each step, {other}", remedy="Leave one of them out.")
    if how.break_lock and not how.reason:
        remedy = "Say why the other run is certain to be gone: --reason TEXT."
        raise UsageError("--break-lock needs --reason", remedy=remedy)
    return how


def settling(session: Session, how: RunOptions, site: str | None, queues: str | None, *, put_back: bool) -> Spec:
    """Raises `UsageError` where it names no site, or would change something without a reason."""
    if site is None:
        raise UsageError("--settle names no site", remedy="Say --site SITE: the site where the copies lie.")
    if how.reason is None and not how.dry_run:
        raise UsageError("--settle needs --reason", remedy="Say what you know of them: --reason TEXT.")
    operation = PUT_BACK if put_back else KEEP_ASIDE
    return asked(session, operation, {"site": site, "queues": queues}, how.reason)


def moment(session: Session, option: str, value: str, *, ahead: bool = False) -> datetime:
    """The value of an option that is a moment of the past, or of the time `ahead`: a date, a time within 24 hours, or a
    duration from now; UTC where no zone is named. Raises `UsageError`."""
    now, day = session.clock.now(), timedelta(days=1 if ahead else -1)
    with suppress(ValueError):
        if (from_now := timedelta(seconds=seconds(value))) or not ahead:
            return now + from_now * (1 if ahead else -1)
        raise UsageError(f"{option} {value}: is over", remedy=f"It is {stamp(now)} now.")
    with suppress(ValueError):
        clock = time.fromisoformat(value)
        today = datetime.combine(now.astimezone(clock.tzinfo or UTC).date(), clock, clock.tzinfo or UTC)
        return (today if (today > now) is ahead else today + day).astimezone(UTC)
    try:
        at = datetime.fromisoformat(value)
    except ValueError as problem:
        which = "in ten minutes" if ahead else "for ten minutes ago"
        remedy = f"As in {option} 09:15 or 2026-11-21T09:15:00Z, both in UTC, or {option} 10m {which}."
        raise UsageError(f"{option} {value}: neither a moment nor a duration", remedy=remedy) from problem
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    if (at > now) is not ahead:
        lies = "is over" if ahead else "lies in the future"
        raise UsageError(f"{option} {value}: {lies}", remedy=f"It is {stamp(now)} now.")
    return at.astimezone(UTC)


def seconds_of(option: str, value: str) -> float:
    """The value of an option that is a duration; raises `UsageError`."""
    try:
        return seconds(value)
    except ValueError as problem:
        raise UsageError(f"{option}: {problem}", remedy=f"As in {option} 90s.") from problem


def _accepted(option: str, value: str) -> Accepted:
    if value == "unknown":
        return "unknown"
    if not value.isdecimal():
        raise UsageError(f"{option} {value}: not a number", remedy=f"As in {option} 500, or unknown.")
    return int(value)


def _differences(option: str, values: Sequence[str]) -> dict[str, int]:
    accepted: dict[str, int] = {}
    for value in values:
        queue, equals, number = value.rpartition("=")
        if not (equals and queue and number.isdecimal()):
            raise UsageError(f"{option} {value}: not QUEUE=N", remedy=f"As in {option} orders.in=3.")
        if accepted.setdefault(queue, int(number)) != int(number):
            raise UsageError(f"{option} {value}: {queue} was named with another number", remedy="Name it once.")
    return accepted
