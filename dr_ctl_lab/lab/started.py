"""Waiting for a started broker; an error quotes the end of its logs."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from dr_ctl.core.errors import BrokerError, EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dr_ctl_lab.lab.state import SiteState

POLL_S = 0.1
STACK_LINE = re.compile(r"\s+(at |\.\.\. \d+ more)|\*+$")


def wait_until(event: str, condition: Callable[[], bool], logs: Sequence[Path], site: SiteState, until: float) -> None:
    """Wait for a condition of a running broker; EnvironmentFault, with the end of its log, where it does not hold in
    time."""
    reason = "not yet"
    while True:
        if site.process is None or not site.process.alive():
            reason = "the broker ended"
            break
        try:
            if condition():
                return
        except BrokerError as error:
            reason = str(error)
        if time.monotonic() > until:
            break
        time.sleep(POLL_S)
    raise EnvironmentFault(f"{site.broker}: {event} did not come true: {reason}\n{log_tail(logs)}")


def log_tail(logs: Sequence[Path], lines: int = 15) -> str:
    """The end of the broker's logs, without stack traces."""
    return "\n".join(f"    {line}" for line in list(_log_lines(logs))[-lines:])


def _log_lines(logs: Sequence[Path]) -> Iterator[str]:
    for path in logs:
        if path.is_file():
            text = path.read_text(errors="replace")
            yield from (line for line in text.splitlines() if line.strip() and not STACK_LINE.match(line))
