"""Reads the settings file, with every problem in one pass, each by line and column, and makes its JSON Schema."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import yaml
from platformdirs import user_config_path
from pydantic import Field, TypeAdapter, ValidationError

from dr_ctl.core.errors import UsageError
from dr_ctl.core.notation import composed
from dr_ctl.core.registry import Registry
from dr_ctl.settings.model import Installation, Settings
from dr_ctl.settings.parts import ONE_OF

TOPOLOGIES: Final[Registry[type[Settings]]] = Registry(
    {
        "artemis-mirror": "dr_ctl.settings.artemis:ArtemisMirror",
        "artemis-continuity": "dr_ctl.settings.artemis:ArtemisContinuity",
        "artemis-bridges": "dr_ctl.settings.artemis:ArtemisBridges",
        "classic-brokersync": "dr_ctl.settings.classic:ClassicBrokerSync",
        "classic-shared-store": "dr_ctl.settings.classic:ClassicSharedStore",
        "classic-fanout": "dr_ctl.settings.classic:ClassicFanout",
    },
    unknown="there is no topology",
)
"""A settings class for each topology, loaded when a file names a topology of its family of brokers."""


class SettingsError(UsageError):
    """The problems of the file, all of them."""

    remedy = "Fix the lines named; `dr-ctl init --topology ID` writes a complete settings file."

    def __init__(self, file: Path, problems: Sequence[Problem], *, remedy: str | None = None) -> None:
        super().__init__("\n".join(problem.described(file) for problem in problems), remedy=remedy)
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Line and column count from 1; 0 stands for the whole file."""

    line: int
    column: int
    where: str
    text: str

    def described(self, file: Path) -> str:
        place = f"{file.name}:{self.line}:{self.column}" if self.line else str(file)
        return f"{place}: {self.where + ': ' if self.where else ''}{self.text}"


def find(given: Path | None) -> Path:
    """Return the path of the settings file: the given one, `DR_CTL_CONFIG`, `dr-ctl.yaml` here, then the user's."""
    if given is not None:
        return given
    if named := os.environ.get("DR_CTL_CONFIG"):
        return Path(named)
    local = Path("dr-ctl.yaml")
    return local if local.exists() else user_config_path("dr-ctl") / "dr-ctl.yaml"


def load(file: Path) -> Installation:
    """Read and check the file; raises `SettingsError` with all problems."""
    root = _mapping(file)
    document = yaml.SafeLoader("").construct_document(root)
    topology = document.get("topology")
    named = topology in list(TOPOLOGIES)
    kinds = [TOPOLOGIES.named(topology_id) for topology_id in ((str(topology),) if named else TOPOLOGIES)]
    read = [_read(root, document, kind, named=named) for kind in kinds]
    # If the file names no known topology, only the problems that every topology would have are certain.
    problems = set.intersection(*(wrong for _, wrong in read))
    if not named and "topology" in document:
        *most, last = (f"'{topology_id}'" for topology_id in TOPOLOGIES)
        problems.add(_problem(root, ("topology",), f"should be {', '.join(most)} or {last}", ""))
    apart = {pair for kind in kinds for pair in kind.apart}
    problems |= {*_twice(root), *_contradictions(root, apart)}
    settings, _ = read[0]
    if settings is None or problems:
        raise SettingsError(file, sorted(problems))
    return Installation(settings=settings, file=file.resolve())


def _mapping(file: Path) -> yaml.MappingNode:
    """Parse the file into nodes, of which every key and value is readable."""

    def wrong(text: str, line: int = 0, column: int = 0, remedy: str | None = None) -> SettingsError:
        return SettingsError(file, [Problem(line, column, "", text)], remedy=remedy)

    try:
        root = composed(file.read_text(encoding="utf-8"))
    except OSError as error:
        remedy = (
            "Name it with --config or DR_CTL_CONFIG, or run where dr-ctl.yaml is. `dr-ctl init URL URL` writes one "
            "from your running brokers, `dr-ctl lab up` one of a lab."
        )
        raise wrong(f"cannot be read: {error.strerror or error}", remedy=remedy) from error
    except UnicodeDecodeError as error:
        raise wrong("is not UTF-8 text") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise wrong(f"is not YAML: {error.problem or error}", *place) from error
    except yaml.YAMLError as error:
        raise wrong(f"is not YAML: {error}") from error
    except RecursionError as error:
        raise wrong("is nested too deeply") from error
    if not isinstance(root, yaml.MappingNode):
        raise wrong("is not a mapping; it begins with `version: 1`", 1, 1)
    if unreadable := _unreadable(root, ()):
        raise SettingsError(file, unreadable)
    for _, node in _every(root):
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            # `on:`, `off:`, `yes:` and `no:` are words here, where YAML means true and false by them.
            key.tag = "tag:yaml.org,2002:str" if key.tag == "tag:yaml.org,2002:bool" else key.tag
    return root


def _every(node: yaml.Node, where: str = "") -> Iterator[tuple[str, yaml.Node]]:
    """Walk a node and all nodes below, each with the keys that lead there."""
    yield where, node
    behind: Iterable[tuple[object, yaml.Node]] = ()
    if isinstance(node, yaml.MappingNode):
        behind = ((key.value, value) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        behind = enumerate(node.value)
    for key, value in behind:
        yield from _every(value, f"{where}.{key}" if where else str(key))


def _read(
    root: yaml.Node, document: dict[str, Any], kind: type[Settings], *, named: bool
) -> tuple[Settings | None, set[Problem]]:
    """Read the settings as one class, and its problems. The file itself names the topology if `named`."""
    try:
        return kind.model_validate(document), set()
    except ValidationError as error:
        places = [problem["loc"] for problem in error.errors()]
        return None, {
            _problem(root, problem["loc"], problem["msg"], problem["type"], kind if named else None)
            for problem in error.errors()
            # A list whose only item is wrong is called too short as well: the item's own problem is the one to fix.
            if not (
                problem["type"] == "too_short"
                and any(problem["loc"] == loc[: len(problem["loc"])] != loc for loc in places)
            )
        }


def _unreadable(node: yaml.Node, within: tuple[yaml.Node, ...]) -> list[Problem]:
    """List YAML that no settings file can contain. A problem never shows the value, which may be a secret."""
    if node in within:
        return [_at(node, "", "holds itself")]
    if isinstance(node, yaml.MappingNode):
        problems = []
        for key, value in node.value:
            merge = key.tag == "tag:yaml.org,2002:merge"
            if not isinstance(key, yaml.ScalarNode) or (merge and isinstance(value, yaml.ScalarNode)):
                problems.append(_at(key, "", "is not a word that can be a key"))
            elif not merge:
                problems += _unreadable(key, within)
            problems += _unreadable(value, (*within, node))
        return problems
    if isinstance(node, yaml.SequenceNode):
        return [problem for item in node.value for problem in _unreadable(item, (*within, node))]
    try:
        yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        return [_at(node, "", f"is not a valid {node.tag.rpartition(':')[2]}; put it in quotes if it is a text")]
    return []


def _twice(root: yaml.Node) -> Iterator[Problem]:
    """Find keys that occur twice in one mapping: YAML would silently take the last."""
    for where, node in _every(root):
        seen = set[str]()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value in seen:
                yield _at(key, f"{where}.{key.value}" if where else str(key.value), "occurs a second time")
            seen.add(str(key.value))


def _contradictions(root: yaml.Node, apart: Iterable[tuple[str, str]]) -> Iterator[Problem]:
    """Find contradictions between parts. Pairs of keys in `apart`, clients' first, must not list the same listener."""
    step = _into(root, "sites")
    if step is None or not isinstance(step[1], yaml.MappingNode):
        return
    key, sites = step
    if len(sites.value) != 2:  # noqa: PLR2004
        yield _at(key, "sites", f"an installation has two sites, not {len(sites.value)}")
    named: list[dict[str, yaml.Node]] = []
    places: dict[str, tuple[str, bool]] = {}
    for site, section in sites.value:
        where = f"sites.{site.value}"
        own: dict[str, yaml.Node] = {}
        named.append(own)
        for broker in _items(section, "brokers"):
            yield from _same_addresses(broker, f"{site.value}.brokers.{_name(broker) or ''}", places)
            called = _into(broker, "name")
            if called is None or not (name := _name(broker)):
                continue
            if name in own:
                yield _at(called[1], where, f"a second broker is called {name}")
            own[name] = called[1]
            for clients, beside in apart:
                if both := sorted(set(_words(broker, clients)) & set(_words(broker, beside))):
                    text = f"{', '.join(both)} cannot be under `{clients}:` and `{beside}:`: a fence closes it for both"
                    yield _at(broker, where, text)
    for own, others in (named, named[::-1]) if len(named) == 2 else ():  # noqa: PLR2004
        for name in own.keys() - others.keys():
            yield _at(own[name], "sites", f"broker {name} has no pair: the other site has no broker of that name")


def _same_addresses(broker: yaml.Node, where: str, places: dict[str, tuple[str, bool]]) -> Iterator[Problem]:
    """Find addresses of nodes that another node or broker has too; `validate` finds those of two brokers without nodes.
    `places` has the first place of each address, and whether that is a node."""
    parts = ((where, broker), *((f"{where}.{_name(node) or ''}", node) for node in _items(broker, "nodes")))
    for place, key in ((place, _into(part, key)) for place, part in parts for key in ("jolokia", "stomp")):
        if key is None or not isinstance(key[1], yaml.ScalarNode):
            continue
        mark = place, place != where
        first, is_node = places.setdefault(key[1].value.rstrip("/").lower(), mark)
        if first != place and (is_node or mark[1]):
            yield _at(key[1], f"sites.{place}.{key[0].value}", f"is that of {first} too")


def _items(node: yaml.Node, key: str) -> list[yaml.Node]:
    step = _into(node, key)
    return step[1].value if step is not None and isinstance(step[1], yaml.SequenceNode) else []


def _words(broker: yaml.Node, key: str) -> list[str]:
    return [node.value for node in _items(broker, key) if isinstance(node, yaml.ScalarNode)]


def _problem(
    root: yaml.Node, loc: Sequence[int | str], text: str, error: str, kind: type[Settings] | None = None
) -> Problem:
    """Place a problem at the deepest existing node on its way. An item of a list is called by its name, if any."""
    node: yaml.Node = root
    at: yaml.Node = root
    path = []
    for number, part in enumerate(loc, start=1):
        step = _into(node, part)
        if step is not None:
            at, node = step
        if step is not None or number == len(loc):  # any other part names one of several kinds, and is no key
            path.append((_name(node) if step is not None and isinstance(part, int) else None) or str(part))
    where = ".".join(part for part in path if part != "[key]")
    if error == "extra_forbidden":
        return _at(at, where, f"unknown key{_meant(str(loc[-1]), kind) if kind is not None else ''}")
    if error == "model_type" and path[-1:] == ["password"]:
        error = "secret"
    texts = {
        "missing": "is missing",
        "tuple_type": "is a list, as in [name]",
        "secret": ONE_OF,
        "model_type": "is a mapping, as in {key: value}",
        "dict_type": "is a mapping, as in {key: value}",
        "too_short": "is empty",
        "string_too_short": "is empty",
        "string_pattern_mismatch": text.replace("String should match pattern", "does not match"),
    }.get(error, text.removeprefix("Value error, ").removeprefix("Input "))
    return _at(at if loc[-1:] == ("[key]",) else node, where, texts)


def _name(node: yaml.Node) -> str | None:
    step = _into(node, "name")
    return str(step[1].value) if step is not None and isinstance(step[1], yaml.ScalarNode) else None


def _meant(key: str, kind: type[Settings]) -> str:
    """Guess the key, or the topology, that a person meant by a key that this topology does not have."""
    [topology] = get_args(kind.model_fields["topology"].annotation)
    if key in _keys(kind):
        return " at this place"
    if others := [name for name in TOPOLOGIES if name != topology and key in _keys(TOPOLOGIES.named(name))]:
        return f" of {topology}; it is one of {' and '.join(others)}"
    near = get_close_matches(key, _keys(kind), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


@cache
def _keys(kind: type[Settings]) -> frozenset[str]:
    document = kind.model_json_schema()
    parts = [document, *document.get("$defs", {}).values()]
    return frozenset(key for part in parts for key in part.get("properties", {}))


def _into(node: yaml.Node, part: int | str) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if str(key.value) == str(part):
                return key, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item: yaml.Node = node.value[part]
        return item, item
    return None


def _at(node: yaml.Node, where: str, text: str) -> Problem:
    return Problem(node.start_mark.line + 1, node.start_mark.column + 1, where, text)


def schema() -> dict[str, Any]:
    every: Any = reduce(or_, (TOPOLOGIES.named(topology) for topology in TOPOLOGIES))
    document = TypeAdapter[Any](Annotated[every, Field(discriminator="topology")]).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dr-ctl settings", **document}
