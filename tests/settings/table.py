"""The table of `docs/settings.md`, made of the classes of the settings.

python -m tests.settings.table
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from dr_ctl.settings.parts import Part, Secret
from dr_ctl.settings.topologies import TOPOLOGIES


def table() -> str:
    """A row for each key: what it means, and what holds where it is left out."""
    found: dict[str, tuple[FieldInfo, list[str]]] = {}
    for topology in TOPOLOGIES:
        for path, field in _keys(TOPOLOGIES.named(topology), ""):
            found.setdefault(path, (field, []))[1].append(topology)
    rows = ["| key | meaning | default |", "| --- | --- | --- |"]
    parts = list(dict.fromkeys(path.rpartition(".")[0] for path in found))
    for path in sorted(found, key=lambda path: parts.index(path.rpartition(".")[0])):
        field, topologies = found[path]
        meaning = field.description or f"what joins the sites: `{'`, `'.join(TOPOLOGIES)}`"
        only = "" if set(topologies) == set(TOPOLOGIES) else f". Only with `{'`, `'.join(topologies)}`"
        rows.append(f"| `{path}` | {meaning}{only} | {_default(field)} |")
    return "\n".join(rows) + "\n"


def _keys(part: type[Part], within: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in part.model_fields.items():
        inner = [each for each in _inside(field.annotation) if each[1] is not Secret]
        if not inner:
            yield f"{within}{name}", field
        for mark, each in inner:
            yield from _keys(each, f"{within}{name}{mark}.")


def _inside(kind: Any) -> list[tuple[str, type[Part]]]:
    """The parts that a key may hold, and how one of several is written."""
    if isinstance(kind, type) and issubclass(kind, Part):
        return [("", kind)]
    origin = get_origin(kind)
    mark = "[]" if origin is tuple else ".NAME" if origin is dict else ""
    return [(mark + inner, part) for each in get_args(kind) for inner, part in _inside(each)]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    return f"`{default if isinstance(default, str) else json.dumps(default)}`" if default else "none"


if __name__ == "__main__":
    print(table(), end="")
