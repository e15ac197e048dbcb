"""Each topology's class of settings, loaded when named and source of the documents, and what each can have wrong."""

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
from dr_ctl.engine import runbook
from dr_ctl.processes.secrets import variables
from dr_ctl.settings import schema
from dr_ctl.settings.loader import SettingsError, load
from dr_ctl.settings.model import Installation, Settings
from dr_ctl.settings.topologies import TOPOLOGIES
from dr_ctl.settings.workloads import CamelRoutes, Commands, HttpService, SystemdUnit
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


SHARED_STORE = ROOT / "examples" / "classic-shared-store.yaml"
BY_DATABASE = {"dsn": {"env": "STORE_DSN"}, "replica": {"dsn": {"env": "REPLICA_DSN"}}}


def settings(folder: Path, store: dict[str, Any], **broker: str) -> Settings:
    told = yaml.safe_load(SHARED_STORE.read_text("utf-8"))
    told["store"] = store
    told["sites"]["paris"]["brokers"][0] |= broker
    path = folder / "dr-ctl.yaml"
    path.write_text(yaml.safe_dump(told), "utf-8")
    return load(path).settings


@pytest.mark.parametrize(
    ("store", "broker", "why"),
    [
        ({}, {}, "either lock, a file, or dsn"),
        ({"lock": "lock", "dsn": {"env": "STORE_DSN"}}, {}, "either lock, a file, or dsn"),
        ({"lock": "lock", "replica": {"dsn": {"env": "REPLICA_DSN"}}}, {}, "needs dsn"),
        ({"dsn": {"env": "STORE_DSN"}, "table": "a; DROP TABLE b"}, {}, "table"),
        ({"lock": "lock"}, {"broker": "orders-london"}, "names of their own"),
    ],
)
def test_what_contradicts_itself_is_told(
    tmp_path: Path, store: dict[str, Any], broker: dict[str, str], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        settings(tmp_path, store, **broker)


def test_the_logins_of_the_databases_are_hidden_from_other_programs(tmp_path: Path) -> None:
    assert {"STORE_DSN", "REPLICA_DSN"} <= variables(settings(tmp_path, BY_DATABASE))


PROMOTES = "  - verify: {to: target}\n  - hook: promote"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("  - verify: {to: target}", "activate without hook promote before it"),
        ("  - hook: promote\n  - verify: {to: target}", "hook promote stands before verify"),
        ("  - verify: {to: target}\n  - hook: other", "activate without hook promote"),
    ],
)
def test_a_replica_is_promoted_after_it_has_all_and_before_a_broker_starts_on_it(
    tmp_path: Path, lines: str, why: str
) -> None:
    store = settings(tmp_path, BY_DATABASE)
    book = (ROOT / "runbooks" / "swapover.yaml").read_text("utf-8")
    verify = next(line for line in book.splitlines() if "verify:" in line)
    for name, told in (("good", PROMOTES), ("bad", lines)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "swapover.yaml").write_text(book.replace(verify, told), "utf-8")

    runbook.load("swapover", tmp_path / "good", store.order)
    with pytest.raises(UsageError, match=why):
        runbook.load("swapover", tmp_path / "bad", store.order)


def test_without_a_replica_the_shipped_runbook_is_right(tmp_path: Path) -> None:
    runbook.load("swapover", ROOT / "runbooks", settings(tmp_path, {"lock": "lock"}).order)


BRIDGES = Path(__file__).parents[2] / "examples" / "artemis-bridges.yaml"


def written(folder: Path, *stores: str) -> Path:
    """The example, with an id store at each of the brokers."""
    head, *brokers = BRIDGES.read_text(encoding="utf-8").split("      - name: orders-1")
    parts = [f"      - name: orders-1\n        ids: {each}{rest}" for each, rest in zip(stores, brokers, strict=True)]
    file = folder / "dr-ctl.yaml"
    file.write_text(head + "".join(parts), encoding="utf-8")
    return file


def test_each_site_has_an_id_store_of_its_own(tmp_path: Path) -> None:
    assert load(written(tmp_path, "{sqlite: london.db}", "{sqlite: paris.db}"))


def test_one_table_of_one_file_for_each_site_is_as_good(tmp_path: Path) -> None:
    assert load(written(tmp_path, "{sqlite: ids.db, table: london}", "{sqlite: ids.db, table: paris}"))


def test_one_id_store_for_both_sites_is_refused_because_it_would_always_agree_with_itself(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="orders-1 at paris and orders-1 at london have the same id store"):
        load(written(tmp_path, "{sqlite: ids.db}", "{sqlite: ids.db}"))


WORKLOADS = Path(__file__).parents[2] / "examples" / "artemis-mirror-workloads.yaml"
HTTP = {"kind": "http", "start": {"post": "http://a/go"}, "stop": {"post": "http://a/halt"}}
STATE = {"get": "http://a/state", "running": "RUNNING"}
CAMEL = {"kind": "camel-route", "jolokia": "http://a:8778/jolokia/", "routes": ["in"]}


def loaded(folder: Path, *workloads: dict[str, Any]) -> Installation:
    told = yaml.safe_load(WORKLOADS.read_text(encoding="utf-8"))
    told["sites"]["london"]["workloads"] = list(workloads)
    (folder / "dr-ctl.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
    return load(folder / "dr-ctl.yaml")


def test_the_example_has_three_kinds_at_both_sites() -> None:
    sites = load(WORKLOADS).settings.sites

    for site in sites.values():
        assert [type(each) for each in site.workloads] == [CamelRoutes, SystemdUnit, Commands]
        assert [(each.singleton, each.timeout) for each in site.workloads] == [(True, 45), (False, 30), (False, 120)]


def test_what_is_asked_over_http_is_the_fourth(tmp_path: Path) -> None:
    [api] = loaded(tmp_path, {"name": "api", **HTTP, "state": STATE}).settings.sites["london"].workloads

    assert isinstance(api, HttpService)
    assert (api.stop.post, api.state.stopped) == ("http://a/halt", None)


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"name": "a", "kind": "cron"}, "'cron' found using 'kind'"),
        ({"name": "a"}, "Unable to extract tag"),
        ({"name": "a", "kind": "systemd"}, "unit: is missing"),
        ({"name": "a", "kind": "systemd", "unit": "--now"}, "unit: "),
        ({"name": "a", "kind": "systemd", "unit": "a.service", "routes": ["in"]}, "routes: unknown key"),
        ({"name": "", "kind": "systemd", "unit": "a.service"}, "name: is empty"),
        ({"name": "a", "kind": "command", "start": [], "stop": ["b"], "state": ["c"]}, "start: is empty"),
        ({"name": "a", **HTTP, "state": {**STATE, "get": "ftp://a"}}, "get: is not an http or https address"),
        ({"name": "a", **CAMEL, "username": "ops"}, "username and password stand together"),
        ({"name": "a", **CAMEL, "timeout": 30}, "timeout: 30 is not a duration"),
        ({"name": "a", **CAMEL, "password": {}, "username": "ops"}, "a secret is exactly one of"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(tmp_path: Path, told: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        loaded(tmp_path, told)

    assert problem in str(wrong.value)


def test_its_line_is_that_of_the_key(tmp_path: Path) -> None:
    text = WORKLOADS.read_text(encoding="utf-8").replace("routes: [billing-in, billing-out]", "routes: billing", 1)
    line = next(number for number, each in enumerate(text.splitlines(), start=1) if "routes: billing" in each)
    (tmp_path / "dr-ctl.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError) as wrong:
        load(tmp_path / "dr-ctl.yaml")

    assert str(wrong.value) == (
        f"dr-ctl.yaml:{line}:17: sites.london.workloads.billing.routes: is a list, as in [name]"
    )


def test_two_of_one_name_at_a_site_are_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a second workload is called a"):
        loaded(tmp_path, {"name": "a", **CAMEL}, {"name": "a", "kind": "systemd", "unit": "a.service"})
