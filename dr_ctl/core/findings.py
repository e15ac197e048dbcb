"""The catalogues of findings, by their ids (`findings.toml`), and of exit codes (`exit_codes.toml`).

`found` makes a finding from the catalogue and the values read. Help, `explain`, the report, README, docs and the list
of checks use both catalogues.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from dr_ctl.core.model import ExitCode, Finding, Health, RefusalScope, Severity

NO_UNDO: Final = "No undo is needed: a broker is not changed."


class Tone(Enum):
    """The kinds of an end: the state was reached, with or without a cost, nothing moved, or somebody has to act."""

    GOOD = "good"
    COST = "cost"
    """No exit code has this tone: the figures of the result show the cost of the reached state."""
    UNDONE = "undone"
    BAD = "bad"
    OPEN = "open"  # for a run that has not ended; no exit code has this tone


@dataclass(frozen=True, slots=True)
class Meaning:
    """The texts of an exit code. `brief` is the line of the help, `what` the sentence of report and docs, `elsewhere`
    the meaning for commands without a run. `do` names the command to type, `costs` its effect and cost, `undo` says
    whether the effect can be undone."""

    tone: Tone
    brief: str
    what: str
    do: str
    costs: str
    undo: str = NO_UNDO
    elsewhere: str = ""


@cache
def meanings() -> Mapping[ExitCode, Meaning]:
    """Read the texts of every exit code, once, in the order of their numbers."""
    rows = ((name, _texts(table)) for name, table in _tables("exit_codes.toml").items())
    return {ExitCode[name.upper()]: Meaning(Tone(texts.pop("tone")), **texts) for name, texts in rows}


class Case(NamedTuple):
    """`text` and `remedy` have {placeholders} for the values read; `page` is the answer of `check`, and `always` says
    that it counts in a maintenance too."""

    text: str
    remedy: str
    severity: Severity
    page: Health | None
    always: bool


@dataclass(frozen=True, slots=True)
class FindingKind:
    """`cases` are the ways in which the finding occurs, by name; the general case has no name. `what` describes the
    finding in general, `do` the remedy, `costs` and `undo` the cost of that remedy; `check` is its name in `validate`,
    empty for a finding that `validate` does not list."""

    id: str
    cases: Mapping[str, Case]
    what: str
    do: str
    costs: str = "Nothing."
    undo: str = NO_UNDO
    check: str = ""
    weighs: RefusalScope = RefusalScope.NONE


@cache
def catalogue() -> Mapping[str, FindingKind]:
    """Read every kind of finding, once, by its id."""
    kinds = _tables("findings.toml").items()
    return {id_: _kind(id_, severity, table) for severity, tables in kinds for id_, table in tables.items()}


def _tables(name: str) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 - a command that ends well has no finding

    with (Path(__file__).parents[1] / name).open("rb") as file:
        return tomllib.load(file)


def _kind(id_: str, severity: str, table: Mapping[str, Any]) -> FindingKind:
    texts = _texts(table)
    scopes = (RefusalScope[name.upper().replace(" ", "_")] for name in table.get("weighs", ()))
    weighs = reduce(or_, scopes, RefusalScope.NONE)
    of_case = {"text": "", "remedy": "", "severity": severity, "page": ""}
    kind = {**of_case, **{key: texts.pop(key) for key in of_case if key in texts}}
    cases = {"": _case(kind)}
    cases |= {name: _case({**kind, **_texts(value)}) for name, value in table.items() if isinstance(value, dict)}
    shown = {"what": _in_general(kind["text"]), "do": _in_general(kind["remedy"])}
    return FindingKind(id_, cases, **{**shown, **texts}, weighs=weighs)


def _case(row: Mapping[str, str]) -> Case:
    always = row["page"] == "always"
    page = Health.CRITICAL if always else Health(row["page"]) if row["page"] else None
    return Case(row["text"], row["remedy"], Severity(row["severity"]), page, always)


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    return {key: " ".join(value.split()) for key, value in table.items() if isinstance(value, str)}


class _Name(str):
    """The name of a value, or of an attribute of it, in capitals; the peer's attributes begin with OTHER_."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Self:
        return type(self)(f"OTHER_{name}".upper() if self == "PEER" else name.upper())


class _Names(dict[str, str]):
    def __missing__(self, name: str) -> _Name:
        return _Name(name.upper())


def _in_general(template: str) -> str:
    """Make the general sentence of a case, with the names of the values in capitals."""
    text = template.format_map(_Names())
    first = text[:1] if text.startswith("dr-ctl") else text[:1].upper()
    return first + text[1:] + ("" if text.endswith((".", "?")) else ".")


def found(
    key: str,
    /,
    *,
    text: str | None = None,
    remedy: str | None = None,
    more: Sequence[str] = (),
    severity: Severity | None = None,
    accepted: bool | None = None,
    **seen: Any,
) -> Finding:
    """Make the finding of that id, or of one of its cases ("DR-LINK-004.kept_out"), from the values read. `text` and
    `remedy` replace those of the case. `accepted` makes the finding a warning if True, and an error if False."""
    id_, _, name = key.partition(".")
    kind = catalogue()[id_]
    case = kind.cases[name]
    text = case.text.format_map(seen) if text is None else text
    remedy = case.remedy.format_map(seen) if remedy is None else remedy
    if accepted is not None:
        severity = Severity.WARNING if accepted else Severity.ERROR
    paged = case.page, case.always
    return Finding(id_, severity or case.severity, text, remedy, tuple(more), kind.weighs, *paged)
