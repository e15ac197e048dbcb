"""Findings by their ids: what dr-ctl knows of each beforehand stands in the catalogue, `findings.toml`.

`found` makes one, of what was seen. `explain`, the docs and the list of checks are made of the catalogue; how much a
finding weighs is a field there, and no list of ids elsewhere.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dr_ctl.core.exit_codes import NO_UNDO
from dr_ctl.core.model import Finding, Severity, Weight


@dataclass(frozen=True, slots=True)
class FindingKind:
    """`text` and `remedy` are of a case, with {places} for what was seen; `what` is so and what to `do` in general,
    what that `costs`, whether it can be undone; `check` is the name under which `validate` lists it, empty for what is
    no check."""

    id: str
    severity: Severity
    what: str
    do: str
    costs: str = "Nothing."
    undo: str = NO_UNDO
    check: str = ""
    weighs: Weight = Weight.NONE
    text: str = ""
    remedy: str = ""


@cache
def catalogue() -> Mapping[str, FindingKind]:
    """Every kind of finding by its id; read once, when the first is needed."""
    with (Path(__file__).parents[1] / "findings.toml").open("rb") as file:
        tables = tomllib.load(file)
    return {id_: _kind(id_, severity, table) for severity, kinds in tables.items() for id_, table in kinds.items()}


def _kind(id_: str, severity: str, table: Mapping[str, Any]) -> FindingKind:
    texts = {key: " ".join(value.split()) for key, value in table.items() if isinstance(value, str)}
    weighs = Weight.NONE
    for name in table.get("weighs", ()):
        weighs |= Weight[name.upper().replace(" ", "_")]
    shown = {"what": _in_general(texts.get("text", "")), "do": _in_general(texts.get("remedy", ""))}
    return FindingKind(id_, Severity(severity), **{**shown, **texts}, weighs=weighs)


class _Names(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name.upper()


def _in_general(template: str) -> str:
    """A sentence that has, in capitals, the name of what was seen where a case has a value."""
    text = template.format_map(_Names())
    first = text[:1] if text.startswith("dr-ctl") else text[:1].upper()
    return first + text[1:] + ("" if text.endswith((".", "?")) else ".")


def found(
    id_: str,
    text: str | None = None,
    remedy: str | None = None,
    /,
    *,
    more: Sequence[str] = (),
    severity: Severity | None = None,
    **seen: object,
) -> Finding:
    """The finding of that id, of what was seen. `text` and `remedy` are for a case that the catalogue's do not fit, as
    `severity` is."""
    kind = catalogue()[id_]
    text = kind.text.format_map(seen) if text is None else text
    remedy = kind.remedy.format_map(seen) if remedy is None else remedy
    return Finding(id_, severity or kind.severity, text, remedy, more, kind.weighs)
