"""From the options of a command to what was asked for; what is not well formed is a usage error with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from dr_ctl.core.errors import UsageError
from dr_ctl.engine.plan import Ask
from dr_ctl.settings.durations import seconds

OPERATIONS = ("swapover", "failover", "failback", "reinstate")


def ask(
    operation: str,
    to: str,
    timeout: str | None,
    cut_in_flight: bool,
    accept_difference: Sequence[str] | None,
    expect_serving: str | None,
) -> Ask:
    """Make the question out of the options; raises `UsageError` where one is not well formed."""
    if operation not in OPERATIONS:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(OPERATIONS)}.")
    accepted: dict[str, int] = {}
    for each in accept_difference or ():
        queue, equals, number = each.rpartition("=")
        if not (equals and queue and number.isdecimal()):
            raise UsageError(
                f"--accept-difference {each}: not QUEUE=N", remedy="As in --accept-difference orders.in=3."
            )
        accepted[queue] = int(number)
    return Ask(operation, to, timeout_s(timeout), cut_in_flight, accepted, expect_serving)


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


def timeout_s(timeout: str | None) -> float | None:
    """The value of --timeout in seconds; raises `UsageError`."""
    if timeout is None:
        return None
    try:
        return seconds(timeout)
    except ValueError as problem:
        raise UsageError(f"--timeout: {problem}", remedy="As in --timeout 90s.") from problem
