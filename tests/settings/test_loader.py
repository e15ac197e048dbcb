"""The settings file: what is right loads, secrets too; what is wrong is told at once; each topology's own class."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pyarrow import fs

from dr_ctl.core.errors import UsageError
from dr_ctl.core.notation import duration, seconds
from dr_ctl.processes import secrets
from dr_ctl.processes.secrets import SecretMissing, resolve, variables
from dr_ctl.settings import loader
from dr_ctl.settings.artemis import MirrorBroker
from dr_ctl.settings.loader import TOPOLOGIES, SettingsError, find, load
from dr_ctl.settings.model import HistoryLocation
from dr_ctl.settings.parts import CamelRoutes, Commands, HttpService, Secret, SystemdUnit
from tests.settings.registered import FolderBroker

EXAMPLE = Path(__file__).parents[2] / "examples" / "artemis-mirror.yaml"
GOOD = EXAMPLE.read_text(encoding="utf-8")
CONTROL = 'unacceptable character #x0001: special characters are not allowed\n  in "<unicode string>", position 6'


def written(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "dr-ctl.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def problems(file: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        load(file)
    return str(caught.value)


def swap(old: str, new: str) -> str:
    """The good file with the first `old` replaced."""
    assert old in GOOD
    return GOOD.replace(old, new, 1)


LONDON = GOOD[GOOD.index("        jolokia: http://london") : GOOD.index("        username:")]
A, B = ({"name": item, "jolokia": f"http://london-{item}:8161/j", "stomp": f"stomp://london-{item}:1"} for item in "ab")


def test_a_broker_may_have_several_nodes(tmp_path: Path) -> None:
    nodes = json.dumps([{**A, "username": "other"}, B])
    text = GOOD.replace(LONDON, f"        nodes: {nodes}\n        cluster: [c]\n", 1)
    broker = load(written(tmp_path, text)).broker("london", "orders-1", MirrorBroker)

    assert (broker.takeover, broker.cluster, broker.nodes[0].username) == (90, ("c",), "other")
    assert broker.processes == [(case["name"], case["jolokia"], case["stomp"]) for case in (A, B)]
    assert broker.addresses == (A["jolokia"], A["stomp"], B["jolokia"], B["stomp"])
    assert not against(yaml.safe_load(text))


def test_the_example_loads() -> None:
    installation = load(EXAMPLE)

    settings = installation.settings
    [london, paris] = (settings.sites[name].brokers[0] for name in ("london", "paris"))
    assert (london.clients, london.mirror, london.password.env) == (("clients",), ("mirror",), "LONDON_PASSWORD")
    assert paris.jolokia == "http://paris-1:8161/console/jolokia"
    limits, drain = settings.objectives, settings.drain
    assert limits is not None
    assert (limits.loss.messages, limits.loss.age, limits.recovery) == (0, 30, 120)
    assert (drain.timeout, drain.poll, drain.stable, drain.stall) == (60, 0.02, 3, 20)
    assert installation.path("history") == EXAMPLE.parent / "history"


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    short = GOOD[: GOOD.index("queues:")].replace("        mirror: [mirror]\n", "")

    settings = load(written(tmp_path, short)).settings

    assert settings.queues.include == ("#",)
    assert settings.objectives is None
    assert (settings.drain.timeout, settings.drain.stable) == (60, 3)
    assert (settings.history.path, settings.spark.master, settings.runbooks) == ("history", "local[*]", None)


@pytest.mark.parametrize(
    ("told", "place"),
    [("file:///srv/history", "/srv/history"), ("file://localhost/a%20b", "/a b"), ("../history", "../history")],
)
def test_a_history_may_be_named_by_a_url_that_a_spark_elsewhere_sees_too(tmp_path: Path, told: str, place: str) -> None:
    installation = load(written(tmp_path, swap("path: history", f"path: {told}")))

    assert installation.history == HistoryLocation.at((tmp_path / place).resolve())


@pytest.mark.parametrize("told", ["s3://bucket/history?region=eu-west-1", "gs://bucket/history", "hdfs://name/history"])
def test_a_history_may_lie_in_a_store_with_its_last_hours_here_too(tmp_path: Path, told: str) -> None:
    history = load(written(tmp_path, swap("path: history", f"path: '{told}'"))).history

    assert history == (told, tmp_path.resolve() / "history")
    assert history.folder is None


def test_a_store_that_pyarrow_cannot_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fs, "GcsFileSystem")
    monkeypatch.setattr(fs, "_not_imported", [*fs._not_imported, "GcsFileSystem"])

    mistakes = problems(written(tmp_path, swap("path: history", "path: gs://bucket/history")))

    assert mistakes.startswith("dr-ctl.yaml:30:17: history.path: this PyArrow has no file system for gs://: ")


def test_a_command_that_is_told_of_ends_needs_no_quotes_around_on(tmp_path: Path) -> None:
    """YAML 1.1 reads `on` as true."""
    [after] = load(written(tmp_path, GOOD + "after:\n  - {run: [./tell.sh], on: [ok, debt]}\n")).settings.after

    assert after.on == ("ok", "debt")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "dr-ctl.yaml:1:1: is not a mapping; it begins with `version: 1`"),
        ("[]", "dr-ctl.yaml:1:1: is not a mapping; it begins with `version: 1`"),
        (GOOD + "\tx: 1\n", "dr-ctl.yaml:31:1: is not YAML: found character '\\t' that cannot start any token"),
        (GOOD + "---\na: 1\n", "dr-ctl.yaml:31:1: is not YAML: but found another document"),
        (GOOD + "hooks: [\n", "dr-ctl.yaml:32:1: is not YAML: expected the node content, but found '<stream end>'"),
        (GOOD + "hooks: &a {x: *a}\n", "dr-ctl.yaml:31:8: holds itself"),
        (GOOD + "? [a]\n: 1\n", "dr-ctl.yaml:31:3: is not a word that can be a key"),
        (swap("name: orders", "name: !us orders"),
         "dr-ctl.yaml:3:7: is not a valid !us; put it in quotes if it is a text"),
        (swap("name: orders", "name: 2001-99-99"),
         "dr-ctl.yaml:3:7: is not a valid timestamp; put it in quotes if it is a text"),
        (GOOD + "drain: {poll: 1ms}\n", "dr-ctl.yaml:31:1: drain: occurs a second time"),
        (swap("[clients]", "['']"), "dr-ctl.yaml:13:19: sites.london.brokers.orders-1.clients.0: is empty"),
        (swap("timeout: 1m", "timeout: 0s"), "dr-ctl.yaml:29:18: drain.timeout: should be longer than 0"),
        (swap("timeout: 1m", "timeout: 36526d"),
         "dr-ctl.yaml:29:18: drain.timeout: '36526d' is longer than a hundred years"),
    ],
)  # fmt: skip
def test_one_thing_wrong_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    assert problems(written(tmp_path, text)) == told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"name: \x01", f"is not YAML: {CONTROL}"),
        (b"a: " + b"[" * 3000, "is nested too deeply"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_told_by_its_path(tmp_path: Path, content: bytes | None, told: str) -> None:
    file = tmp_path / "dr-ctl.yaml" if content is None else written(tmp_path, content)

    assert problems(file) == f"{file}: {told}"


@pytest.mark.parametrize(
    "damage",
    [
        "{plain: hunter2, env: A}",
        "{plain: [hunter2]}",
        "{plain: !secret hunter2}",
        "{plain: !!int hunter2}",
        "{plian: hunter2}",
        "hunter2",
        "[hunter2]",
        "{plain: hunter2, plain: hunter2}",
        "{plain: hunter2}\n        clients: 5",
    ],
)
def test_no_problem_tells_a_secret(tmp_path: Path, damage: str) -> None:
    assert "hunter2" not in problems(written(tmp_path, swap("{env: LONDON_PASSWORD}", damage)))
    well = load(written(tmp_path, swap("{env: LONDON_PASSWORD}", "{plain: hunter2}")))
    assert "hunter2" not in f"{well!r} {well} {well.settings.sites!r}"


def test_which_file_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("DR_CTL_CONFIG", raising=False)
    assert find(None) == tmp_path / "config" / "dr-ctl" / "dr-ctl.yaml"
    Path("dr-ctl.yaml").touch()
    assert find(None) == Path("dr-ctl.yaml")
    monkeypatch.setenv("DR_CTL_CONFIG", "named.yaml")
    assert (find(None), find(Path("told.yaml"))) == (Path("named.yaml"), Path("told.yaml"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("20ms", 0.02), ("0s", 0), ("1.5s", 1.5), ("1m", 60), ("2h", 7200), ("30d", 2_592_000), (" 5 s ", 5)],
)
def test_a_duration_is_a_number_with_its_unit(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "told", ["", "5", 5, 0, None, True, "s", "-5s", "1e3s", ".5s", "5.s", "5 sec", "1m30s", "5S", "5s\nx"]
)
def test_anything_else_is_refused_with_the_remedy(told: object) -> None:
    with pytest.raises(ValueError, match="write a number with its unit, as in 20ms, 5s, 1m, 2h or 30d"):
        seconds(told)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0 ms"), (0.0214, "21 ms"), (1.0, "1.00 s"), (9.994, "9.99 s"), (12.3, "12 s"), (60.0, "1 min 0 s")),
        *((61.4, "1 min 1 s"), (3599.0, "59 min 59 s"), (3600.0, "1 h 0 min"), (90_061.0, "25 h 1 min")),
    ],
)
def test_seconds_are_told_in_the_unit_that_suits(value: float, text: str) -> None:
    assert duration(value) == text


PYTHON = sys.executable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIVEN", "from-env")
    monkeypatch.delenv("ABSENT", raising=False)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "secret").write_text("from-file \n\n")
    (tmp_path / "latin").write_bytes(b"hunter2\xff")
    (tmp_path / "tell").write_text("#!/bin/sh\nprintf 'from-command\\n'\n")
    (tmp_path / "tell").chmod(0o700)
    return tmp_path


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        (Secret(plain="from-here"), "from-here"),
        (Secret(env="GIVEN"), "from-env"),
        (Secret(file="secret"), "from-file \n"),
        (Secret(command=("./tell",)), "from-command"),
        (Secret(command=(PYTHON, "-c", "import os; print(os.getcwd())")), "{folder}"),
    ],
)
def test_a_secret_comes_from_where_the_settings_say(folder: Path, secret: Secret, text: str) -> None:
    assert resolve(secret, folder) == text.format(folder=folder.resolve())


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        (Secret(env="ABSENT"), "the environment variable ABSENT is not set"),
        (Secret(file="absent"), "absent cannot be read: No such file or directory"),
        (Secret(file="x" * 300), "x cannot be read: File name too long"),
        (Secret(file="."), "cannot be read: Is a directory"),
        (Secret(file="latin"), "latin cannot be read: it is not UTF-8 text"),
        (Secret(command=("./absent", "hunter2")), "the secret's command ./absent failed: FileNotFoundError"),
        (Secret(command=("./latin",)), "the secret's command ./latin failed: PermissionError"),
        (
            Secret(command=("sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3")),
            "the secret's command sh ended with 3",
        ),
        (Secret(command=("sh", "-c", "kill -9 $$")), "the secret's command sh ended with -9"),
        (Secret(command=("sh", "-c", "printf '\\377'")), "the secret's command sh wrote no UTF-8 text"),
    ],
)
def test_one_that_cannot_be_had_is_told_without_its_text(folder: Path, secret: Secret, told: str) -> None:
    with pytest.raises(SecretMissing) as caught:
        resolve(secret, folder)

    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_command_that_does_not_end_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "COMMAND_S", 0.05)

    with pytest.raises(SecretMissing, match="the secret's command sleep failed: TimeoutExpired"):
        resolve(Secret(command=("sleep", "60")), folder)


def test_a_command_is_asked_nothing_through_the_terminal(folder: Path) -> None:
    with pytest.raises(SecretMissing, match="the password is empty: the command cat"):
        resolve(Secret(command=("cat",)), folder)


ROOT = Path(__file__).parents[2]
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.yaml")) if "\ntopology:" in path.read_text("utf-8")]


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(TOPOLOGIES.modules, "folders", "tests.settings.registered:Folders")
    return (
        "version: 1\nname: orders\ntopology: folders\nsites:\n"
        "  here: {brokers: [{name: a, folder: ./here}]}\n  there: {brokers: [{name: a, folder: ./there}]}\n"
    )


def test_a_topology_that_is_registered_has_settings_of_its_own_and_their_mistakes(tmp_path: Path, folders: str) -> None:
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


def test_the_classes_of_one_family_of_brokers_are_not_loaded_for_another() -> None:
    program = (
        "import sys; from pathlib import Path; from dr_ctl.settings.loader import load;"
        f"load(Path({str(ROOT / 'examples' / 'artemis-mirror.yaml')!r}));"
        "print([each for each in sys.modules if each in ('dr_ctl.settings.artemis', 'dr_ctl.settings.classic')])"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['dr_ctl.settings.artemis']"


def test_one_that_there_is_not_is_named_with_those_there_are_and_a_broker_of_another_kind_is_not_given() -> None:
    with pytest.raises(UsageError, match="there is no topology pigeons") as caught:
        TOPOLOGIES.named("pigeons")
    *first, last = TOPOLOGIES
    assert caught.value.remedy == f"There are {', '.join(first)} and {last}."
    with pytest.raises(LookupError, match="london has no FolderBroker orders-1"):
        load(EXAMPLES[0]).broker("london", "orders-1", FolderBroker)


def against(document: Any) -> list[str]:
    """Where the schema of its topology speaks against a document."""
    schema = loader.schema()
    own = schema["discriminator"]["mapping"][document["topology"]]
    validator = Draft202012Validator({"$defs": schema["$defs"], "$ref": own})
    return [iter_error.json_path for iter_error in validator.iter_errors(document)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_what_the_schema_describes(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert (against(document), Draft202012Validator(loader.schema()).is_valid(document)) == ([], True)


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


def test_the_logins_of_the_databases_are_hidden_from_other_programs(tmp_path: Path) -> None:
    settings = yaml.safe_load(SHARED_STORE.read_text("utf-8")) | {"store": BY_DATABASE}

    assert {"STORE_DSN", "REPLICA_DSN"} <= variables(load(written(tmp_path, yaml.safe_dump(settings))).settings)


WORKLOADS = ROOT / "examples" / "artemis-mirror-workloads.yaml"
HTTP = {"kind": "http", "start": {"post": "http://a/go"}, "stop": {"post": "http://a/halt"}}
STATE = {"get": "http://a/state", "running": "RUNNING"}


def test_the_example_has_three_kinds_at_both_sites_and_what_is_asked_over_http_is_the_fourth(tmp_path: Path) -> None:
    for site in load(WORKLOADS).settings.sites.values():
        assert [type(workload) for workload in site.workloads] == [CamelRoutes, SystemdUnit, Commands]
        assert [(workload.singleton, workload.timeout) for workload in site.workloads] == [
            (True, 45),
            (False, 30),
            (False, 120),
        ]
    items = yaml.safe_load(WORKLOADS.read_text(encoding="utf-8"))
    items["sites"]["london"]["workloads"] = [{"name": "api", **HTTP, "state": STATE}]
    [api] = load(written(tmp_path, yaml.safe_dump(items))).settings.sites["london"].workloads
    assert isinstance(api, HttpService)
    assert (api.stop.post, api.state.stopped) == ("http://a/halt", None)
