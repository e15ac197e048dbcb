"""`init`: from two management addresses to settings, of every topology, without a secret in them."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.application import beginning
from dr_ctl.application.documents.schema import data_types, schema_of
from dr_ctl.settings.loader import load
from dr_ctl.settings.topologies import TOPOLOGIES
from dr_ctl_lab.lab.kinds import KINDS
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import CONTINUITY, FANOUT, MIRROR
from tests.conftest import Command
from tests.topologies.continuity.plugin import needs_plugin
from tests.twin.conftest import OTHERS

# What the file must say as the stage's own settings do, beside what all brokers have.
TOLD = {"mirror", "bridge", "broker"}
REAL = [pytest.param(each, marks=[needs_plugin] if each == CONTINUITY else []) for each in KINDS]


@pytest.fixture(params=[MIRROR, *OTHERS])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlayedTwin]:
    with PlayedTwin.up(tmp_path / "twin", topology=request.param) as twin:
        yield twin


@pytest.fixture
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    with Lab.up(tmp_path / "lab", topology=request.param) as lab:
        yield lab


def brokers(path: Path) -> dict[str, dict[str, Any]]:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {site: each["brokers"][0] for site, each in document["sites"].items()}


def begun(
    stage: PlayedTwin | Lab, command: Command, folder: Path, patch: pytest.MonkeyPatch, *more: str
) -> tuple[Any, Path]:
    """Ask for settings of that stage, with its own logins."""
    words, out = [], folder / "begun.yaml"
    for site, broker in brokers(stage.settings_path).items():
        secret = (stage.settings_path.parent / broker["password"]["file"]).read_text(encoding="utf-8").strip()
        patch.setenv(f"{site.upper()}_PASSWORD", secret)
        words.append(f"{site}={broker['jolokia']}")
    username = brokers(stage.settings_path)["london"]["username"]
    return command("init", *words, "--username", username, "--out", str(out), *more), out


def judged(stage: PlayedTwin | Lab, ended: Any, out: Path) -> None:
    topology = load(stage.settings_path).settings.topology
    assert ended.code == 0, ended.document
    assert ended.document["data"]["topology"] == topology
    written = load(out)
    own, mine = brokers(stage.settings_path), brokers(out)
    for site in own:
        for key in TOLD & {*own[site]} & {*mine[site]}:
            assert sorted(mine[site][key]) == sorted(own[site][key]), (site, key)
        if topology == FANOUT:  # no broker tells producers from consumers
            assert {*mine[site]["producers"]} <= {*own[site]["producers"]}
            assert [line for line in ended.document["data"]["to_decide"] if line.startswith(("clients:", "producers:"))]
            continue
        # A door that nobody uses may be named too: a fence that closes it does no harm.
        others = {door for key in ("mirror", "bridge") for door in own[site].get(key, ())}
        assert set(own[site]["clients"]) <= set(mine[site]["clients"])
        assert not others & set(mine[site]["clients"])
    text = out.read_text(encoding="utf-8")
    for broker in own.values():
        assert (stage.settings_path.parent / broker["password"]["file"]).read_text(encoding="utf-8").strip() not in text
    assert written.settings.topology == topology
    assert ended.document["data"]["validate"]["exit_code"] is not None


def test_what_brokers_say_is_written_down(
    stage: PlayedTwin, inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(stage, *begun(stage, inside, tmp_path, monkeypatch))

    assert stage.changes() == []


@pytest.mark.parametrize("stage", [MIRROR], indirect=True)
def test_a_door_of_the_link_that_clients_may_use_too_is_told_with_one_for_the_link_alone(
    stage: PlayedTwin, inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`amqp` is what the broker's own configuration calls the acceptor of AMQP clients."""
    for site in stage.sites:
        stage.host(site).broker.acceptors["mirror"].name = "amqp"

    ended, out = begun(stage, inside, tmp_path, monkeypatch)

    assert [broker["mirror"] for broker in brokers(out).values()] == [["amqp"], ["amqp"]]
    told = [each for each in ended.document["findings"] if each["id"] == "DR-INIT-003"]
    assert [each["text"].partition(" was")[0] for each in told] == ["london: amqp", "paris: amqp"]
    assert all('<acceptor name="mirror">tcp://' in each["remedy"] for each in told)
    assert all("put amqp under `clients:`" in each["remedy"] for each in told)


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.parametrize("real", REAL, indirect=True)
def test_what_real_brokers_say_is_written_down(
    real: Lab, inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(real, *begun(real, inside, tmp_path, monkeypatch))


def a_file_is_there(twin: PlayedTwin, out: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    del twin
    out.write_text("mine\n", encoding="utf-8")
    return ()


def its_password_is_wrong(twin: PlayedTwin, _: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    for site in twin.sites:
        path = twin.settings_path.parent / brokers(twin.settings_path)[site]["password"]["file"]
        path.write_text("wrong", encoding="utf-8")
    return ()


def one_is_down(twin: PlayedTwin, _: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    twin.kill("paris")
    return ()


def another_topology(twin: PlayedTwin, _: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return ("--topology", CONTINUITY)


@pytest.mark.parametrize(
    ("but", "code", "ident", "remedy"),
    [
        (a_file_is_there, 2, "DR-USAGE", ""),
        (its_password_is_wrong, 22, "DR-INIT-001", ""),
        (one_is_down, 22, "DR-INIT-001", "Start the broker of http://127.0.0.1:"),
        (another_topology, 22, "DR-INIT-001", "Leave `--topology` out"),
    ],
)
def test_what_cannot_be_told_writes_nothing(
    twin: PlayedTwin,
    inside: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    but: Callable[[PlayedTwin, Path, pytest.MonkeyPatch], tuple[str, ...]],
    code: int,
    ident: str,
    remedy: str,
) -> None:
    more = but(twin, tmp_path / "begun.yaml", monkeypatch)

    ended, out = begun(twin, inside, tmp_path, monkeypatch, *more)

    first = ended.document["findings"][0]
    assert (ended.code, first["id"], remedy in first["remedy"]) == (code, ident, True), ended.document
    assert (out.read_text(encoding="utf-8") if out.exists() else None) == ("mine\n" if but is a_file_is_there else None)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "no address and no topology was named"),
        (("http://one:8161/jolokia",), "two addresses are needed"),
        (("a=http://one:8161/j", "b=http://two:8161/j", "c=http://three:8161/j"), "3 site(s) were named"),
        (("http://one:8161/j", "http://two:8161/j"), "there is no password for the brokers of one"),
        (("a=http://one:8161/j", "b=http://one:8161/j/"), "an address stands twice"),
    ],
)
def test_what_is_missing_is_said(
    inside: Command, tmp_path: Path, words: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONE_PASSWORD", raising=False)

    ended = inside("init", *words, "--out", str(tmp_path / "begun.yaml"))

    assert (ended.code, why in ended.document["summary"]) == (2, True), ended.document["summary"]


@pytest.mark.parametrize("topology", [*TOPOLOGIES])
def test_without_addresses_the_example_of_a_topology_is_written(inside: Command, tmp_path: Path, topology: str) -> None:
    out = tmp_path / "begun.yaml"

    ended = inside("init", "--topology", topology, "--out", str(out))

    assert (ended.code, load(out).settings.topology) == (0, topology)


def test_all_examples_are_written_where_nothing_is_yet(inside: Command, tmp_path: Path) -> None:
    out = tmp_path / "examples"

    ended = inside("init", "--examples", str(out))

    assert ended.code == 0
    assert {each.name: each.read_bytes() for each in out.iterdir() if each.is_file()} == {
        each.name: each.read_bytes() for each in beginning.examples().iterdir()
    }
    assert {each.name for each in out.iterdir() if os.access(each, os.X_OK) and each.is_file()} == {
        each.name for each in out.iterdir() if each.is_file() and each.read_bytes().startswith(b"#!")
    }
    for command in (*data_types(), None):
        written = out / "schemas" / f"{command.replace(' ', '-') if command else 'settings'}.json"
        assert json.loads(written.read_text(encoding="utf-8")) == schema_of(command)
    assert inside("init", "--examples", str(out)).code == 2
