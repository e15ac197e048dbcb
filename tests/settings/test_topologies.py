"""Each topology's class of settings, loaded when named and source of the documents, and what each can have wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

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


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(TOPOLOGIES.modules, "folders", "tests.settings.registered")
    return (
        "version: 1\nname: orders\ntopology: folders\nsites:\n"
        "  here: {brokers: [{name: a, folder: ./here}]}\n  there: {brokers: [{name: a, folder: ./there}]}\n"
    )


def test_a_topology_that_is_registered_has_settings_of_its_own_and_what_is_wrong_with_them_is_told(
    tmp_path: Path, folders: str
) -> None:
    file = tmp_path / "dr-ctl.yaml"
    file.write_text(folders)
    assert load(file).broker("there", "a", FolderBroker).folder == "./there"
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


def test_one_that_there_is_not_is_named_with_those_there_are_and_a_broker_of_another_kind_is_not_given() -> None:
    with pytest.raises(UsageError, match="there is no topology pigeons") as caught:
        TOPOLOGIES.named("pigeons")
    *first, last = TOPOLOGIES
    assert caught.value.remedy == f"There are {', '.join(first)} and {last}."
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


def against(document: Any) -> list[str]:
    """Where the schema of its topology speaks against a document."""
    told = schema.schema()
    own = told["discriminator"]["mapping"][document["topology"]]
    validator = Draft202012Validator({"$defs": told["$defs"], "$ref": own})
    return [each.json_path for each in validator.iter_errors(document)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_what_the_schema_describes(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert (against(document), Draft202012Validator(schema.schema()).is_valid(document)) == ([], True)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("version: 1", "version: 2", "$.version"),
        ("clients: [", "clinets: [", "$.sites.london.brokers[0]"),
        ("username: dr-ctl", "username: 7", "$.sites.london.brokers[0].username"),
        ("timeout: 1m", "timeout: 60", "$.drain.timeout"),
        ("timeout: 1m", "timeout: soon", "$.drain.timeout"),
        ("  london:", "  London:", "$.sites"),
        ("{env: LONDON_PASSWORD}", "{}", "$.sites.london.brokers[0].password"),
    ],
)
def test_the_schema_says_what_is_wrong(old: str, new: str, wrong: str) -> None:
    text = EXAMPLES[0].read_text(encoding="utf-8")
    assert old in text

    assert {*against(yaml.safe_load(text.replace(old, new, 1)))} == {wrong}


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


BRIDGES = ROOT / "examples" / "artemis-bridges.yaml"


def written(folder: Path, *stores: str) -> Path:
    """The example, with an id store at each of the brokers."""
    head, *brokers = BRIDGES.read_text(encoding="utf-8").split("      - name: orders-1")
    parts = [f"      - name: orders-1\n        ids: {each}{rest}" for each, rest in zip(stores, brokers, strict=True)]
    file = folder / "dr-ctl.yaml"
    file.write_text(head + "".join(parts), encoding="utf-8")
    return file


def test_each_site_has_an_id_store_of_its_own_or_a_table_and_one_for_both_would_always_agree_with_itself(
    tmp_path: Path,
) -> None:
    assert load(written(tmp_path, "{sqlite: london.db}", "{sqlite: paris.db}"))
    assert load(written(tmp_path, "{sqlite: ids.db, table: london}", "{sqlite: ids.db, table: paris}"))
    with pytest.raises(SettingsError, match="orders-1 at paris and orders-1 at london have the same id store"):
        load(written(tmp_path, "{sqlite: ids.db}", "{sqlite: ids.db}"))


WORKLOADS = ROOT / "examples" / "artemis-mirror-workloads.yaml"
HTTP = {"kind": "http", "start": {"post": "http://a/go"}, "stop": {"post": "http://a/halt"}}
STATE = {"get": "http://a/state", "running": "RUNNING"}
CAMEL = {"kind": "camel-route", "jolokia": "http://a:8778/jolokia/", "routes": ["in"]}


def loaded(folder: Path, *workloads: dict[str, Any]) -> Installation:
    told = yaml.safe_load(WORKLOADS.read_text(encoding="utf-8"))
    told["sites"]["london"]["workloads"] = list(workloads)
    (folder / "dr-ctl.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
    return load(folder / "dr-ctl.yaml")


def test_the_example_has_three_kinds_at_both_sites_and_what_is_asked_over_http_is_the_fourth(tmp_path: Path) -> None:
    for site in load(WORKLOADS).settings.sites.values():
        assert [type(each) for each in site.workloads] == [CamelRoutes, SystemdUnit, Commands]
        assert [(each.singleton, each.timeout) for each in site.workloads] == [(True, 45), (False, 30), (False, 120)]
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
        ({"name": "b", **CAMEL}, "a second workload is called b"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(tmp_path: Path, told: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        loaded(tmp_path, told, {"name": "b", "kind": "systemd", "unit": "b.service"})

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
