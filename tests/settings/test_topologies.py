"""Each topology has a class of settings: loaded when named, registered by one line, and source of the documents."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.core.errors import UsageError
from dr_ctl.settings import schema
from dr_ctl.settings.loader import SettingsError, load
from dr_ctl.settings.topologies import TOPOLOGIES
from tests.settings.registered import FolderBroker
from tests.settings.table import pages, rewritten

ROOT = Path(__file__).parents[2]
EXAMPLES = [each for each in sorted((ROOT / "examples").glob("*.yaml")) if "\ntopology:" in each.read_text("utf-8")]
KINDS = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
SIMPLE: dict[str, Callable[[Any, Any], bool]] = {
    "const": lambda value, said: value == said,
    "pattern": lambda value, said: re.search(said, value) is not None,
    "minimum": lambda value, said: value >= said,
    "exclusiveMinimum": lambda value, said: value > said,
    "minLength": lambda value, said: len(value) >= said,
    "minItems": lambda value, said: len(value) >= said,
    "minProperties": lambda value, said: len(value) >= said,
    "maxProperties": lambda value, said: len(value) <= said,
    "required": lambda value, said: set(said) <= set(value),
}
KNOWN = {
    *("$schema", "$defs", "title", "description", "default", "type"),
    *("properties", "patternProperties", "additionalProperties"),
}


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(TOPOLOGIES.modules, "folders", "tests.settings.registered")
    return (
        "version: 1\nname: orders\ntopology: folders\nsites:\n"
        "  here: {brokers: [{name: a, folder: ./here}]}\n  there: {brokers: [{name: a, folder: ./there}]}\n"
    )


def test_a_topology_that_is_registered_has_settings_of_its_own(tmp_path: Path, folders: str) -> None:
    file = tmp_path / "dr-ctl.yaml"
    file.write_text(folders)

    installation = load(file)

    assert installation.broker("there", "a", FolderBroker).folder == "./there"


def test_what_is_wrong_with_them_is_told_like_any_other(tmp_path: Path, folders: str) -> None:
    file = tmp_path / "dr-ctl.yaml"
    file.write_text(folders.replace("folder: ./here", "jolokia: http://localhost"))

    with pytest.raises(SettingsError) as caught:
        load(file)

    assert str(caught.value) == (
        "dr-ctl.yaml:5:20: sites.here.brokers.a.folder: is missing\n"
        "dr-ctl.yaml:5:30: sites.here.brokers.a.jolokia: unknown key at this place"
    )


def test_the_class_of_one_topology_is_not_loaded_for_another() -> None:
    program = (
        "import sys; from pathlib import Path; from dr_ctl.settings.loader import load;"
        f"load(Path({str(ROOT / 'examples' / 'artemis-mirror.yaml')!r}));"
        "print([each for each in sys.modules if each.startswith('dr_ctl.settings.topologies.')])"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "artemis_mirror" in done.stdout
    assert "artemis_continuity" not in done.stdout


def test_one_that_there_is_not_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="there is no topology pigeons") as caught:
        TOPOLOGIES.named("pigeons")

    *first, last = TOPOLOGIES
    assert caught.value.remedy == f"There are {', '.join(first)} and {last}."


def test_a_broker_of_another_kind_is_not_given() -> None:
    with pytest.raises(LookupError, match="london has no FolderBroker orders-1"):
        load(EXAMPLES[0]).broker("london", "orders-1", FolderBroker)


def test_the_committed_schema_is_that_of_the_classes() -> None:
    assert json.loads((ROOT / "docs" / "settings.schema.json").read_text()) == schema.schema()


@pytest.mark.parametrize(("name", "keys"), pages().items())
def test_the_keys_of_a_page_are_those_of_the_classes(name: str, keys: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")

    assert page.count("<!-- made: keys -->") == 1
    assert rewritten(page, keys) == page, "python -m tests.settings.table"
    assert "None" not in keys


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_what_the_schema_describes(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert list(against(document, schema.schema(), "")) == []


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("version: 1", "version: 2", ".version"),
        ("clients: [", "clinets: [", ".sites.london.brokers.0"),
        ("username: dr-ctl", "username: 7", ".sites.london.brokers.0.username"),
        ("timeout: 1m", "timeout: 60", ".drain.timeout"),
        ("timeout: 1m", "timeout: soon", ".drain.timeout"),
        ("  london:", "  London:", ".sites"),
        ("{env: LONDON_PASSWORD}", "{}", ".sites.london.brokers.0.password"),
    ],
)
def test_the_schema_says_what_is_wrong(old: str, new: str, wrong: str) -> None:
    text = EXAMPLES[0].read_text(encoding="utf-8")
    assert old in text

    found = list(against(yaml.safe_load(text.replace(old, new, 1)), schema.schema(), ""))

    assert found[0].startswith(f"{wrong}: ")


def against(value: Any, rule: dict[str, Any], at: str, root: dict[str, Any] | None = None) -> Iterator[str]:
    """What of a value a schema speaks against, by the words that ours uses; any other word fails the test."""
    root = root or rule
    match rule:
        case {"discriminator": {"propertyName": key, "mapping": refs}}:
            yield from against(value, {"$ref": refs[value[key]]}, at, root)
            return
        case {"$ref": ref}:
            yield from against(value, root["$defs"][ref.rpartition("/")[2]], at, root)
            return
        case {"anyOf": some}:
            found = [list(against(value, each, at, root)) for each in some]
            yield from [] if [] in found else found[0]
            return
    if "type" in rule and (
        not isinstance(value, KINDS[rule["type"]]) or isinstance(value, bool) != (rule["type"] == "boolean")
    ):
        yield f"{at}: {value!r} is no {rule['type']}"
        return
    for word, said in rule.items():
        if word in SIMPLE:
            yield from [] if SIMPLE[word](value, said) else [f"{at}: {value!r} is not {word} {said}"]
        elif word == "items":
            for number, each in enumerate(value):
                yield from against(each, said, f"{at}.{number}", root)
        else:
            assert word in KNOWN, word
    for key, each in value.items() if rule.get("type") == "object" else ():
        inner = inside(key, rule)
        yield from [f"{at}: {key} is unknown"] if inner is False else against(each, inner, f"{at}.{key}", root)


def inside(key: str, rule: dict[str, Any]) -> Any:
    """The rule for one key of a mapping; False where it may not be there."""
    if key in rule.get("properties", {}):
        return rule["properties"][key]
    patterns = rule.get("patternProperties", {}).items()
    return next((inner for pattern, inner in patterns if re.search(pattern, key)), rule.get("additionalProperties", {}))
