"""What is asked of dr-ctl: the operation with its options, and how it is run. Each field that an option sets declares
that option, for the command line, for the plan and for the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Literal

from dr_ctl.core.document import key, option

Accepted = int | Literal["unknown"] | None
"""How many messages may be lost or duplicated; with None the objectives decide."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The operator's request: the operation, its target, and the options that shape it.

    `units` names the units to move, and is None for all; other units stay untouched. `queues` is the pattern that chose
    them. `silent_since` is the operator's word on when a lost site's service ended.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    operation: str
    target: str
    timeout_s: float | None = option("--timeout T", "How long the drain may take, as in 30s or 5m.")
    cut_in_flight: bool = option(
        "--cut-in-flight", "Move although clients hold messages: they come again.", default=False
    )
    accept_difference: Mapping[str, int] = option(
        "--accept-difference QUEUE=N", "Move with exactly this difference.", default=dict
    )
    expect_serving: str | None = option("--expect-serving SITE", "Refuse unless SITE serves.")
    accept_loss: Accepted = option(  # noqa: RUF009 - makes a field
        "--accept-loss N|unknown", "Messages that a failover may lose."
    )
    presume_down: str | None = option("--presume-down SITE", "Take this site for down; needs --reason.")
    reason: str | None = option("--reason TEXT", "Why; the journal keeps it.")
    max_outage_s: float | None = option("--max-outage T", "Undo when clients would be out longer; default: objectives.")
    units: tuple[str, ...] | None = field(default=None, metadata=key(optional=True))
    silent_since: str | None = option(
        "--silent-since T",
        "When the lost site's service ended (10m ago, 03:02 or a date, UTC): bounds the loss; needs --reason.",
        optional=True,
    )
    queues: str | None = option(
        "--queues PATTERN",
        "Only these queues: a name, or a pattern as in Artemis (`orders.#`); where the topology moves queues one by "
        "one.",
        optional=True,
    )
    accept_duplicates: Accepted = option(  # noqa: RUF009
        "--accept-duplicates N|unknown", "Duplicates that this may bring.", optional=True
    )

    def typed(self) -> list[str]:
        """The options beside operation and site, as a person types them."""
        words: list[str] = []
        for declared in fields(self):
            name, _, kind = declared.metadata.get("typed", "").partition(" ")
            value = getattr(self, declared.name)
            if not name or value is None or value is False:
                continue
            values = [f"{queue}={count}" for queue, count in value.items()] if kind == "QUEUE=N" else [value]
            for given in values:
                words += [name, f"{given:g}s" if isinstance(given, float) else str(given)] if kind else [name]
        return words

    def includes(self, unit: str | None) -> bool:
        """Say whether that unit is to move; False for None."""
        return unit is not None and (self.units is None or unit in self.units)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`reason` and `expect_serving` are options of `Ask`, and here for commands that ask no question of their own.
    `after`: the newest epoch of a lock in the reading that the run rests on, None for a person's command."""

    yes: bool = option("--yes", "Ask nothing.", default=False)
    dry_run: bool = option("--dry-run", "Show the very plan that a run would execute; change nothing.", default=False)
    break_lock: bool = option("--break-lock", "Take over the live lock of another run; needs --reason.", default=False)
    reason: str | None = None
    expect_serving: str | None = None
    step: bool = option("--step", "Ask before each step; a no offers undo, or stopping here.", default=False)
    after: int | None = None
    at: datetime | None = option(  # noqa: RUF009
        "--at T", "Wait under the lock until T (02:30, a date, UTC; or 90m), then plan again; refused if that changed."
    )
    saved: Path | None = option(  # noqa: RUF009
        "--plan FILE", "Carry out this saved plan, or refuse: what changed?"
    )
