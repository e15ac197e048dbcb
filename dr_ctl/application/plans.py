"""A plan's title, and the plan as the file that `plan --out` wrote and `--plan` takes up again.

A saved plan holds as long as what it was decided from does: counters move all the time and are no part of it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.document import document
from dr_ctl.core.document import read as read_back
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Json, some
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.operations import ALONE, AT_SOURCE, REINSTATE
from dr_ctl.engine.plan import Decision, Plan, PlannedStep, Refusal
from dr_ctl.engine.runs import write


def title(plan: Plan) -> str:
    operation = plan.ask.operation
    if plan.as_if_lost is not None:
        return f"{operation} from {plan.source} to {plan.target}, as if {plan.as_if_lost} was lost"
    if plan.ask.units is not None:
        operation = f"{operation} of {some(plan.ask.units)}"
    if plan.ask.operation in AT_SOURCE:
        return f"{operation} {plan.source}"
    if plan.ask.operation == REINSTATE:
        return f"{operation} {plan.target}"
    if plan.ask.operation in ALONE:
        return f"{operation} to {plan.target}"
    return f"{operation} from {plan.source} to {plan.target}"


def save(plan: Plan, out: Path) -> None:
    """Write it where `--plan` finds it; raises `UsageError`."""
    try:
        write(out, document(plan))
    except OSError as problem:
        raise UsageError(
            f"--out {out}: {problem.strerror or problem}", remedy="Name a file that can be written."
        ) from problem


@dataclass(frozen=True, slots=True)
class Saved:
    """A plan that was written to a file."""

    path: Path
    content: bytes
    plan: Plan

    @property
    def ask(self) -> Ask:
        return self.plan.ask


def load(path: Path, again: str, *, named: str = "") -> Saved:
    """Read a saved plan that can be carried out. Raises `UsageError` with the remedy `again` where it is none. `named`
    is what stands before the file in errors."""
    try:
        content = path.read_bytes()
        row = json.loads(content)
        saved = Saved(path, content, read_back(Plan, {**row, "steps": row["steps"]}))
    except OSError as problem:
        raise UsageError(f"{named}{path}: {problem.strerror or problem}", remedy=again) from problem
    except (ValueError, KeyError, TypeError) as problem:
        why = f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)
        raise UsageError(f"{named}{path}: is not a saved plan: {why}", remedy=again) from problem
    if (lost := saved.plan.as_if_lost) is not None:
        why = f"{named}{path}: was made as if {lost} was lost, to be read, and is never carried out"
        remedy = f"`dr-ctl plan {saved.ask.operation} --to {saved.ask.target}` plans from what is so now."
        raise UsageError(why, remedy=remedy)
    return saved


def read(path: Path, asked: Ask) -> Saved:
    """Read a saved plan for the command that names it; raises `UsageError` where it is none, or for another one."""
    again = f"`dr-ctl plan {asked.operation} --to {asked.target} --out {path}` writes it anew."
    saved = load(path, again, named="--plan ")
    if (saved.ask.operation, saved.ask.target) != (asked.operation, asked.target):
        why = f"--plan {path}: is a plan for {saved.ask.operation} to {saved.ask.target}"
        raise UsageError(why, remedy=again)
    bare = replace(asked, reason=saved.ask.reason)  # which is a word beside the plan, not a part of it
    own = replace(saved.ask, units=None) if saved.ask.queues is not None else saved.ask
    if bare not in (own, Ask(asked.operation, asked.target, max_outage_s=asked.max_outage_s, reason=bare.reason)):
        text = f"--plan {path}: the options of the command are not those of the plan"
        raise UsageError(text, remedy="Leave them out: the plan has its own.")
    return saved


def same(saved: Saved | None, decided: Decision) -> Decision:
    """The new decision, or a refusal that names every difference from the saved plan."""
    if saved is None or not isinstance(decided, Plan):
        return decided
    now = json.loads(json.dumps(dict(decided.basis)))
    changes = list(_changes(saved.plan.basis, now))
    if not changes and [_shape(step) for step in saved.plan.steps] != [_shape(step) for step in decided.steps]:
        changes = ["the steps are others"]
    if not changes:
        return decided
    return Refusal(
        tuple(
            found("DR-PLAN-001", change=change, operation=saved.ask.operation, target=saved.ask.target, path=saved.path)
            for change in changes
        )
    )


def _shape(step: PlannedStep) -> tuple[str, str, tuple[tuple[str, ...], ...]]:
    """A step without what is written down when it is done, as the moment."""
    return step.verb, step.site, tuple((call.site, call.unit, call.goal.value, call.thing) for call in step.calls)


def _changes(was: Json | Mapping[str, Any], now: Json | Mapping[str, Any], at: str = "") -> Iterator[str]:
    """The places whose values differ, with both values."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*was, *now]):
            yield from _changes(was.get(key), now.get(key), f"{at} {key}".strip())
    elif isinstance(was, list) and isinstance(now, list):
        gone = [str(each) for each in was if each not in now]
        new = [str(each) for each in now if each not in was]
        if gone or new:
            parts = [f"without {', '.join(gone)}"] * bool(gone) + [f"with {', '.join(new)}"] * bool(new)
            yield f"{_place(at)} now {' and '.join(parts)}"
        elif was != now:
            yield f"{_place(at)} in another order"
    elif was != now and at == "settings":
        yield "the settings file is another"
    elif was != now:
        yield f"{_place(at)} was {_said(was)}, is {_said(now)}"


_WORDS: Final = {"acceptors": "acceptor open:", "link": "link started:", "shut_out": "clients' roles kept out"}


def _place(at: str) -> str:
    """The place of a difference as an operator names it."""
    what, _, more = at.partition(" ")
    site, _, rest = more.partition(" ")
    pair, _, rest = rest.partition(" ")
    key, _, name = rest.partition(" ")
    return f"{site}/{pair}: {_WORDS.get(key, key)} {name}".rstrip() if what == "brokers" and key else at


def _said(value: Json | Mapping[str, Any]) -> str:
    return {"None": "not there", "True": "yes", "False": "no"}.get(str(value), str(value))
