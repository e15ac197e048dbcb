"""Writes the generated parts of the docs: exit codes, findings, keys of the settings (between marks), the schema of the
settings, and the manual page.

python -m bench.pages
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic.fields import FieldInfo

from dr_ctl import __version__
from dr_ctl.application.explaining import Entry, codes, findings
from dr_ctl.cli.app import declared
from dr_ctl.cli.command import SECTIONS, TEXTS
from dr_ctl.core.findings import NO_UNDO, Tone, meanings
from dr_ctl.settings.loader import TOPOLOGIES, schema
from dr_ctl.settings.parts import Secret, Section

ROOT: Final = Path(__file__).parents[1]
_MADE: Final = re.compile(r"(<!-- made: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> Mapping[str, str]:
    """Each page with generated parts, and each generated page, with its text."""
    keys = _keys_of_pages()
    with_keys = {f"docs/{name}.md": {**_PARTS, "keys": keys[name]} for name in keys}
    made = dict.fromkeys(("README.md", "docs/command-line.md", "docs/findings.md"), _PARTS) | with_keys
    whole = {"docs/settings.schema.json": json.dumps(schema(), indent=1) + "\n", "docs/dr-ctl.1": manual()}
    return {name: rewritten((ROOT / name).read_text(encoding="utf-8"), parts) for name, parts in made.items()} | whole


def rewritten(page: str, parts: Mapping[str, str]) -> str:
    """A page of the docs with new text between its marks."""
    return _MADE.sub(lambda part: f"{part[1]}{parts[part[2]]}\n{part[3]}", page)


def _exit_codes() -> str:
    rows = [(f"{int(code)}", f"`{code.outcome}`", meaning.brief) for code, meaning in meanings().items()]
    table = [f"| {' | '.join(row)} |" for row in (("code", "outcome", "meaning"), ("---",) * 3, *rows)]
    elsewhere = [f"- {int(code)}: {meaning.elsewhere}" for code, meaning in meanings().items() if meaning.elsewhere]
    return "\n".join((*table, "", "For commands without a run, and for single steps:", "", *map(_filled, elsewhere)))


def _what_to_type() -> str:
    """Exit codes that need an action, as items of a list."""
    asking = [(code, meaning) for code, meaning in meanings().items() if meaning.tone is not Tone.GOOD]
    return "\n".join(
        _filled(f"- **`{code.outcome}` ({int(code)})**, {meaning.brief}. {meaning.do}") for code, meaning in asking
    )


def _sections(entries: Mapping[str, Entry]) -> str:
    return "\n\n".join(
        "\n".join((f"### {title}", "", *_paragraphs(entry.what, entry.do, entry.costs, entry.undo)))
        for title, entry in entries.items()
    )


def _paragraphs(what: str, do: str, costs: str, undo: str) -> Iterator[str]:
    yield _filled(what)
    yield ""
    yield _filled(f"- To do: {do}")
    yield _filled(f"- Effect: {costs}")
    if undo != NO_UNDO:
        yield _filled(f"- Undo: {undo}")


def _filled(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


_PARTS: Final[Mapping[str, str]] = {
    "exit codes": _exit_codes(),
    "what to type": _what_to_type(),
    "codes at length": _sections({f"{int(code)}, `{code.outcome}`": entry for code, entry in codes().items()}),
    "findings": _sections(findings()),
}


def _keys_of_pages() -> Mapping[str, str]:
    """The list of keys for each page that has one."""
    topologies = {topology: dict(_keys(TOPOLOGIES.named(topology), "")) for topology in TOPOLOGIES}
    everywhere = set.intersection(*(set(keys) for keys in topologies.values()))
    first = next(iter(topologies.values()))
    common = {path: field for path, field in first.items() if path in everywhere}
    workloads = {path: field for path, field in common.items() if ".workloads[]" in path}
    of_topology = {
        topology: {path: field for path, field in keys.items() if path not in everywhere}
        for topology, keys in topologies.items()
    }
    general = {path: field for path, field in common.items() if path not in workloads}
    return {name: _listed(keys) for name, keys in {"settings": general, "workloads": workloads, **of_topology}.items()}


def _listed(keys: Mapping[str, FieldInfo]) -> str:
    parts = list(dict.fromkeys(path.rpartition(".")[0] for path in keys))
    ordered = sorted(keys, key=lambda path: parts.index(path.rpartition(".")[0]))
    return "\n".join(_key(path, keys[path]) for path in ordered)


def _key(path: str, field: FieldInfo) -> str:
    meaning = field.description or f"what joins the sites: `{'`, `'.join(TOPOLOGIES)}`"
    text = f"- `{path}` ({_default(field)}): {meaning}"
    return textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _keys(part: type[Section], within: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in part.model_fields.items():
        inner = [item for item in _inside(field.annotation) if item[1] is not Secret]
        if not inner:
            yield f"{within}{name}", field
        for mark, value in inner:
            yield from _keys(value, f"{within}{name}{mark}.")


def _inside(kind: Any) -> list[tuple[str, type[Section]]]:
    """The sections that a key may have, each with the suffix of its path."""
    if isinstance(kind, type) and issubclass(kind, Section):
        return [("", kind)]
    origin = get_origin(kind)
    mark = "[]" if origin is tuple else ".NAME" if origin is dict else ""
    return [(mark + inner, part) for get_arg in get_args(kind) for inner, part in _inside(get_arg)]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    return f"`{default if isinstance(default, str) else json.dumps(default)}`" if default else "none"


_DESCRIPTION = """dr-ctl moves a messaging service between two sites of ActiveMQ brokers: it fences clients, drains the
replication link, verifies that both sites hold the same messages, opens the target and proves that it serves. A failure
before the point of no return is undone. `dr-ctl COMMAND --help` has an example of each command."""
_ENVIRONMENT = {
    "DR_CTL_CONFIG": "The settings file; --config wins. Default: dr-ctl.yaml here, then in the user's configuration.",
    "DR_CTL_STATE_DIR": "Where runs are kept; --state-dir wins. Default: the user's state directory.",
    "NO_COLOR": "Plain text, as with --no-color.",
    "JAVA_HOME": "The Java that the estimate starts.",
}


def manual() -> str:
    """The page in the macros of man(7)."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    whole: Any = declared()
    yield f'.TH DR\\-CTL 1 "" "dr\\-ctl {__version__}" "dr\\-ctl"'
    yield from _section("Name", r"dr\-ctl \- move a messaging service between two sites of ActiveMQ brokers")
    yield from _section("Synopsis", ".B dr\\-ctl", _escaped("[OPTION]... COMMAND [ARGUMENT]..."))
    yield from _section("Description", _escaped(_DESCRIPTION))
    yield from _section("Options")
    yield from _options(whole, "", only_own=False)
    for title, names in SECTIONS.items():
        yield from _section(title)
        for name in names:
            yield from _command(whole.commands.get(name), name)
    yield from _section("Exit status")
    for code, meaning in meanings().items():
        yield from _item(str(int(code)), f"{meaning.brief} ({code.outcome})")
    yield from _section("Environment")
    for name, text in _ENVIRONMENT.items():
        yield from _item(name, text)


def _command(command: Any, name: str) -> Iterator[str]:
    if command is None:  # of dr_ctl_lab, which is not loaded here
        yield f'.SS "{_escaped(name)}"'
        yield _escaped(TEXTS[name])
    elif members := getattr(command, "commands", None):
        for member, subcommand in members.items():
            yield from _command(subcommand, f"{name} {member}")
    else:
        yield f'.SS "{_escaped(name)}"'
        yield _escaped(" ".join(command.help.split()))
        yield from _options(command, name, only_own=True)


def _options(command: Any, name: str, *, only_own: bool) -> Iterator[str]:
    common = {"output", "json", "quiet", "warn_exit", "help"}
    # With the program's context as parent, from which a command takes the names of its help option.
    whole: Any = declared()
    with whole.make_context("dr-ctl", [], resilient_parsing=True) as above:
        ctx = above if command is whole else command.make_context(name, [], parent=above, resilient_parsing=True)
        rows = [(param.name, param.get_help_record(ctx)) for param in command.get_params(ctx)]
    for option, row in rows:
        if row is not None and not (only_own and option in common):
            yield from _item(*row)


def _section(title: str, *lines: str) -> Iterator[str]:
    yield f'.SH "{title.upper()}"'
    yield from lines


def _item(name: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield f"\\fB{_escaped(name)}\\fR"
    yield _escaped(text)


def _escaped(text: str) -> str:
    """The text with roff's special characters escaped."""
    return " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")


if __name__ == "__main__":
    for name, page in pages().items():
        (ROOT / name).write_text(page, encoding="utf-8")
