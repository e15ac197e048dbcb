"""What is owed, for every command that looks: from the brokers that answered, and from STATE for those that did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dr_ctl.application.caller import Caller
from dr_ctl.application.result import Result
from dr_ctl.core.model import Json
from dr_ctl.engine.debts import Debt, known, merged, remember
from dr_ctl.topologies.topology import Seen


def owed(state: Path, seen: Sequence[Debt], answered: Sequence[str]) -> list[Debt]:
    """Put both together, and remember it for when a broker that holds a debt is away."""
    path = state / "debts.json"
    debts = merged(known(path), seen, answered)
    remember(path, debts)
    return debts


def owed_now(caller: Caller, seen: Seen) -> list[Debt]:
    """The same of a look."""
    return owed(caller.state(), seen.debts, sorted({each.site for each in seen.brokers if each.silent is None}))


def with_units(caller: Caller, result: Result, seen: Seen) -> Result:
    """A result with who serves what, and what is owed."""
    data: dict[str, Json] = {**result.data, "pairs": [unit.as_json() for unit in seen.units]}
    return replace(result, data=data, debts=owed_now(caller, seen))
