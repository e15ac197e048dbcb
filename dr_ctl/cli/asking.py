"""From the options of a command to what was asked for; what is not well formed is a usage error with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from dr_ctl.cli.how import How, Theft
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import UsageError
from dr_ctl.engine.operations import WHOLE
from dr_ctl.engine.plan import Ask
from dr_ctl.settings.durations import seconds


def ask(
    operation: str,
    to: str,
    *,
    timeout: str | None = None,
    cut_in_flight: bool = False,
    accept_difference: Sequence[str] | None = None,
    expect_serving: str | None = None,
    max_outage: float | None = None,
) -> Ask:
    """Make the question out of the options; raises `UsageError` where one is not well formed."""
    accepted: dict[str, int] = {}
    for each in accept_difference or ():
        queue, equals, number = each.rpartition("=")
        if not (equals and queue and number.isdecimal()):
            raise UsageError(
                f"--accept-difference {each}: not QUEUE=N", remedy="As in --accept-difference orders.in=3."
            )
        accepted[queue] = int(number)
    return Ask(operation, to, timeout_s(timeout), cut_in_flight, accepted, expect_serving, max_outage_s=max_outage)


def whole(operation: str) -> str:
    """The operation that was named, where it is a whole one; raises `UsageError`."""
    if operation not in WHOLE:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(WHOLE)}.")
    return operation


def at_source(
    session: Session,
    operation: str,
    site: str,
    *,
    timeout: str | None = None,
) -> Ask:
    """The same for a step that is done at the site it names: the other one is its target."""
    sites = list(session.installation().settings.sites)
    if site not in sites:
        raise UsageError(f"no site {site} in the settings", remedy=f"The sites are {' and '.join(sites)}.")
    other = next(name for name in sites if name != site)
    return ask(operation, other, timeout=timeout)


def with_price(asked: Ask, accept_loss: str | None, presume_down: str | None, reason: str | None) -> Ask:
    """Add what a failover may cost and rest on; raises `UsageError` where an option is not well formed."""
    accepted: int | Literal["unknown"] | None = None
    if accept_loss is not None:
        if accept_loss != "unknown" and not accept_loss.isdecimal():
            raise UsageError(
                f"--accept-loss {accept_loss}: not a number", remedy="As in --accept-loss 500, or unknown."
            )
        accepted = "unknown" if accept_loss == "unknown" else int(accept_loss)
    if presume_down is not None and not reason:
        raise UsageError("--presume-down needs --reason", remedy="Say why that site is taken for down: --reason TEXT.")
    return replace(asked, accept_loss=accepted, presume_down=presume_down, reason=reason)


def how(
    *,
    yes: bool = False,
    dry_run: bool = False,
    step: bool = False,
    saved: Path | None = None,
    steal: bool = False,
    reason: str | None = None,
    expect_serving: str | None = None,
) -> How:
    """How it is to be run; raises `UsageError` where the options contradict each other, or lack a reason."""
    if step and yes:
        raise UsageError("--step asks before each step, --yes asks nothing", remedy="Leave one of them out.")
    if steal and not reason:
        raise UsageError("--steal needs --reason", remedy="Say why the other run is certain to be gone: --reason TEXT.")
    return How(yes, dry_run, step, Theft(steal, reason), saved, expect_serving)


def timeout_s(timeout: str | None) -> float | None:
    """The value of --timeout in seconds; raises `UsageError`."""
    return _seconds("--timeout", timeout)


def outage_s(session: Session, max_outage: str | None) -> float | None:
    """The value of --max-outage in seconds; without it the planned time to recovery, where the settings have one."""
    told = _seconds("--max-outage", max_outage)
    objectives = session.installation().settings.objectives
    return told if told is not None or objectives is None else objectives.recovery


def _seconds(option: str, told: str | None) -> float | None:
    if told is None:
        return None
    try:
        return seconds(told)
    except ValueError as problem:
        raise UsageError(f"{option}: {problem}", remedy=f"As in {option} 90s.") from problem
