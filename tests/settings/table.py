"""The keys of the settings in the docs, made of their classes: common keys in settings.md, those of a topology on its
page, those of workloads on theirs. Each list stands between marks.

python -m tests.settings.table
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from dr_ctl.settings.loader import TOPOLOGIES
from dr_ctl.settings.parts import Secret, Section

DOCS = Path(__file__).parents[2] / "docs"
_MADE = re.compile(r"(<!-- made: keys -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> Mapping[str, str]:
    """The list of keys of each page of the docs that has one."""
    topologies = {topology: dict(_keys(TOPOLOGIES.named(topology), "")) for topology in TOPOLOGIES}
    everywhere = set.intersection(*(set(keys) for keys in topologies.values()))
    first = next(iter(topologies.values()))
    common = {path: field for path, field in first.items() if path in everywhere}
    workloads = {path: field for path, field in common.items() if ".workloads[]" in path}
    own = {
        topology: {path: field for path, field in keys.items() if path not in everywhere}
        for topology, keys in topologies.items()
    }
    rest = {path: field for path, field in common.items() if path not in workloads}
    return {name: _listed(keys) for name, keys in {"settings": rest, "workloads": workloads, **own}.items()}


def rewritten(page: str, keys: str) -> str:
    return _MADE.sub(lambda part: f"{part[1]}{keys}{part[2]}", page)


def _listed(keys: Mapping[str, FieldInfo]) -> str:
    parts = list(dict.fromkeys(path.rpartition(".")[0] for path in keys))
    ordered = sorted(keys, key=lambda path: parts.index(path.rpartition(".")[0]))
    return "".join(f"{_item(path, keys[path])}\n" for path in ordered)


def _item(path: str, field: FieldInfo) -> str:
    meaning = field.description or f"what joins the sites: `{'`, `'.join(TOPOLOGIES)}`"
    text = f"- `{path}` ({_default(field)}): {meaning}"
    return textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _keys(part: type[Section], within: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in part.model_fields.items():
        inner = [each for each in _inside(field.annotation) if each[1] is not Secret]
        if not inner:
            yield f"{within}{name}", field
        for mark, each in inner:
            yield from _keys(each, f"{within}{name}{mark}.")


def _inside(kind: Any) -> list[tuple[str, type[Section]]]:
    """The parts that a key may hold, and how one of several is written."""
    if isinstance(kind, type) and issubclass(kind, Section):
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
    for name, keys in pages().items():
        path = DOCS / f"{name}.md"
        path.write_text(rewritten(path.read_text(encoding="utf-8"), keys), encoding="utf-8")
