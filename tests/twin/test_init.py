"""`init`: from two management addresses to settings, of every topology, without a secret in them; and a rehearsal on
the brokers: a queue of dr-ctl's own goes the whole path, and business queues stay byte for byte."""

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.application import init
from dr_ctl.application.documents import data_types, schema_of
from dr_ctl.core import machine
from dr_ctl.settings.loader import TOPOLOGIES, load
from dr_ctl_lab.lab.kinds import KINDS
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.jolokia import Management, failed
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from dr_ctl_lab.twin.nodes import Layout
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.timeouts import impatient
from tests.topologies.continuity.plugin import needs_plugin
from tests.twin.conftest import BOTH, OTHERS
from tests.twin.matrix import done, edited, put
from tests.twin.subject import until

# What the file must say as the stage's own settings do, beside what all brokers have.
TOLD = {"mirror", "bridge", "broker"}
REAL = [pytest.param(kind, marks=[needs_plugin] if kind == CONTINUITY else []) for kind in KINDS]


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
    return {site: item["brokers"][0] for site, item in document["sites"].items()}


Begun = Callable[..., tuple[Ended, Path]]


@pytest.fixture
def begun(inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begun:
    """Asks for settings of a stage, with its own logins."""

    def asked(stage: PlayedTwin | Lab, *more: str) -> tuple[Ended, Path]:
        words, out = [], tmp_path / "begun.yaml"
        for site, broker in brokers(stage.settings_path).items():
            secret = (stage.settings_path.parent / broker["password"]["file"]).read_text(encoding="utf-8").strip()
            monkeypatch.setenv(f"{site.upper()}_PASSWORD", secret)
            words += [f"{site}={item['jolokia']}" for item in reversed(broker.get("nodes", [broker]))]
        username = brokers(stage.settings_path)["london"]["username"]
        return inside("init", *words, "--username", username, "--out", str(out), *more), out

    return asked


def test_the_nodes_of_a_broker_are_one(begun: Begun, tmp_path: Path) -> None:
    with PlayedTwin.up(tmp_path / "twin", layout=Layout(nodes=2)) as twin:
        own, (ended, out) = brokers(twin.settings_path), begun(twin)

    by_name = {site: [item["jolokia"] for item in broker["nodes"]] for site, broker in brokers(out).items()}
    assert by_name == {site: [item["jolokia"] for item in broker["nodes"]] for site, broker in own.items()}, ended.told
    assert brokers(out)["london"]["clients"] == own["london"]["clients"]


def judged(stage: PlayedTwin | Lab, ended: Any, out: Path) -> None:
    topology = load(stage.settings_path).settings.topology
    assert ended.code == 0, ended.document
    assert ended.document["data"]["topology"] == topology
    written = load(out)
    own, items = brokers(stage.settings_path), brokers(out)
    for site in own:
        for key in TOLD & {*own[site]} & {*items[site]}:
            assert sorted(items[site][key]) == sorted(own[site][key]), (site, key)
        if topology == FANOUT:  # no broker tells producers from consumers
            assert {*items[site]["producers"]} <= {*own[site]["producers"]}
            assert [line for line in ended.document["data"]["to_decide"] if line.startswith(("clients:", "producers:"))]
            continue
        # A listener that nobody uses may be named too: a fence that closes it does no harm.
        others = {listener for key in ("mirror", "bridge") for listener in own[site].get(key, ())}
        assert set(own[site]["clients"]) <= set(items[site]["clients"])
        assert not others & set(items[site]["clients"])
    text = out.read_text(encoding="utf-8")
    for broker in own.values():
        assert (stage.settings_path.parent / broker["password"]["file"]).read_text(encoding="utf-8").strip() not in text
    assert written.settings.topology == topology
    assert ended.document["data"]["validate"]["exit_code"] is not None


def test_what_brokers_say_is_written_down(stage: PlayedTwin, begun: Begun) -> None:
    judged(stage, *begun(stage))

    assert stage.changes() == []


@pytest.mark.parametrize(
    ("allowed", "remedy"), [("http://localhost", ""), ("http://console", "Allow http://127.0.0.1")]
)
@pytest.mark.parametrize("stage", [MIRROR], indirect=True)
def test_an_origin_that_the_console_allows_is_written(
    stage: PlayedTwin, begun: Begun, monkeypatch: pytest.MonkeyPatch, allowed: str, remedy: str
) -> None:
    refusal = failed("java.lang.Exception", "Origin is not allowed to call this agent", 403)
    monkeypatch.setattr(Management, "request_refusal", lambda *given: None if given[-1] == allowed else refusal)

    ended, out = begun(stage)

    origins = {site.origin for site in load(out).settings.sites.values()} if out.exists() else set()
    assert (ended.code, origins) == ((22, set()) if remedy else (0, {allowed}))
    assert not remedy or ended.document["findings"][0]["remedy"].startswith(remedy)


@pytest.mark.parametrize("stage", [MIRROR], indirect=True)
def test_a_listener_of_the_link_that_clients_may_use_too_is_told(stage: PlayedTwin, begun: Begun) -> None:
    """`amqp` is what the broker's own configuration calls the acceptor of AMQP clients."""
    for site in stage.sites:
        stage.host(site).broker.acceptors["mirror"].name = "amqp"

    ended, out = begun(stage)

    assert [broker["mirror"] for broker in brokers(out).values()] == [["amqp"], ["amqp"]]
    rows = ended.rows("DR-INIT-003")
    assert [item["text"].partition(" was")[0] for item in rows] == ["london: amqp", "paris: amqp"]
    for words in ('<acceptor name="mirror">tcp://', "put amqp under `clients:`"):
        assert all(words in finding["remedy"] for finding in rows)


@pytest.mark.parametrize(
    ("but", "code", "ident", "remedy"),
    [
        ("a file is there", 2, "DR-USAGE", ""),
        ("a wrong password", 22, "DR-INIT-001", ""),
        ("one is down", 22, "DR-INIT-001", "Start the broker of http://127.0.0.1:"),
        ("another topology", 22, "DR-INIT-001", "leave `--topology` out"),
    ],
)
def test_what_cannot_be_told_writes_nothing(
    twin: PlayedTwin, begun: Begun, tmp_path: Path, but: str, code: int, ident: str, remedy: str
) -> None:
    out = tmp_path / "begun.yaml"
    if but == "a file is there":
        out.write_text("mine\n", encoding="utf-8")
    for broker in brokers(twin.settings_path).values() if but == "a wrong password" else ():
        (twin.settings_path.parent / broker["password"]["file"]).write_text("wrong", encoding="utf-8")
    if but == "one is down":
        twin.kill("paris")

    ended, _ = begun(twin, *(("--topology", CONTINUITY) if but == "another topology" else ()))

    first = ended.document["findings"][0]
    assert (ended.code, first["id"], remedy in first["remedy"]) == (code, ident, True), ended.document
    assert (out.read_text(encoding="utf-8") if out.exists() else None) == ("mine\n" if code == 2 else None)


def test_where_nodes_show_nothing_in_common_the_command_that_names_the_active_ones_is_said(
    begun: Begun, inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = init.registry.probed
    monkeypatch.setattr(init.registry, "probed", lambda *given, **more: replace(probed(*given, **more), node=""))
    with PlayedTwin.up(tmp_path / "twin", layout=Layout(nodes=2)) as twin:
        with edited(twin) as settings:
            settings["sites"]["paris"]["brokers"][0]["nodes"].pop()
        refused, out = begun(twin)
        remedy = refused.document["findings"][0]["remedy"]
        [words] = re.findall("`dr-ctl (init [^`]+)`", remedy)
        ended = inside(*words.split(), "--username", "admin", "--out", str(out))

    assert (refused.code, refused.document["summary"].split(":")[0]) == (2, "2 broker(s) at london, 1 at paris")
    assert "the others under `nodes:` in the file" in remedy
    assert (ended.code, [*brokers(out)]) == (0, ["london", "paris"])


@pytest.mark.parametrize("topology", [*TOPOLOGIES])
def test_without_addresses_the_example_of_a_topology_is_written(inside: Command, tmp_path: Path, topology: str) -> None:
    out = tmp_path / "begun.yaml"

    ended = inside("init", "--topology", topology, "--out", str(out))

    assert (ended.code, load(out).settings.topology) == (0, topology)


def test_all_examples_are_written_where_nothing_is_yet(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "examples"

    ended = inside("init", "--examples", str(out))

    assert ended.code == 0
    written = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert written == {path.name: path.read_bytes() for path in machine.shipped("examples").iterdir()}
    for name, text in written.items():
        assert os.access(out / name, os.X_OK) is text.startswith(b"#!"), name
    for command in (*data_types(), None):
        written = out / "schemas" / f"{command.replace(' ', '-') if command else 'settings'}.json"
        assert json.loads(written.read_text(encoding="utf-8")) == schema_of(command)
    assert inside("init", "--examples", str(out)).code == 2

    def full(*paths: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), paths[1])

    monkeypatch.setattr(init, "copy", full)
    assert inside("init", "--examples", str(tmp_path / "full")).code == 2
    assert not (tmp_path / "full").exists()


CANARY = "rehearsal.dr-ctl.london"


def business(twin: PlayedTwin) -> dict[str, Any]:
    """Everything that lies in queues which are not dr-ctl's own."""
    return {
        f"{site}/{name}": [(message.number, message.body) for message in queue.available()]
        for site in twin.sites
        for name, queue in twin.host(site).broker.queues.items()
        if not name.startswith(("dr-ctl.", CANARY))
    }


def canaries(twin: PlayedTwin) -> list[Any]:
    brokers = [twin.host(site).broker for site in twin.sites]
    return [queue for broker in brokers for name, queue in broker.queues.items() if name.startswith(CANARY)]


def last_step(dr_ctl: Command, ended: Ended, verb: str) -> dict[str, Any]:
    steps = dr_ctl("runs", "show", ended.document["run"]).document["data"]["steps"]
    return next(step for step in reversed(steps) if step["step"].endswith(verb))


@BOTH
def test_messages_of_its_own_go_the_whole_path(
    twin: PlayedTwin, dr_ctl: Command, topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if topology == BROKERSYNC:
        impatient(monkeypatch, canary_s=1.0)
    put(twin, "london", "orders.in", 5)
    remote = "paris/orders.in"  # wherever the link keeps them
    if topology != SHARED_STORE:
        until(lambda: sum(len(lying) for name, lying in business(twin).items() if name.startswith(remote)) == 5)
    before = business(twin)

    ended = dr_ctl("rehearse", "--yes")

    by_name = {finding["id"]: finding for finding in ended.document["findings"]}
    if topology == BROKERSYNC:  # no composite queue copies the canary: that is told, and nothing is left
        assert (ended.code, "composite queue" in by_name["DR-REHEARSE-001"]["remedy"]) == (24, True)
    else:
        assert "10 message(s) went the whole path" in last_step(dr_ctl, done(ended), "canary")["text"]
        assert ("DR-REHEARSE-001" in by_name) is (topology in (BRIDGES, FANOUT, SHARED_STORE))
    if topology == CONTINUITY:  # a flow of the plugin stays: it is empty, and the next rehearsal takes it
        assert all(not [*queue.available()] for queue in canaries(twin))
        done(dr_ctl("rehearse", "--yes"))
    else:
        assert canaries(twin) == []
    assert business(twin) == before
    assert {item["serving"] for item in ended.document["data"]["pairs"]} == {"london"}


def test_a_link_that_is_cut_ends_the_rehearsal_and_leaves_nothing(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, canary_s=0.5)
    twin.cut()

    ended = dr_ctl("rehearse", "--yes")

    assert (ended.code, canaries(twin)) == (24, []), ended.document
    assert "not seen within 0.5 s" in ended.document["summary"]
    assert "london serves" in ended.document["summary"]


def test_what_a_killed_rehearsal_left_is_cleaned_and_where_nothing_is_that_is_well(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    done(dr_ctl("rehearse", "clean", "--yes"))
    put(twin, "london", CANARY, 3)
    twin.wait_mirrored()

    done(dr_ctl("rehearse", "clean", "--yes"))

    assert canaries(twin) == []


def test_a_rehearsal_needs_a_site_that_serves_and_one_that_waits_and_lets_nobody_in(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    dry = done(dr_ctl("rehearse", "--dry-run"))
    twin.kill("paris")

    ended = dr_ctl("rehearse", "--yes")

    [step] = [step for step in dry.document["data"]["plan"]["steps"] if step["verb"] == "canary"]
    assert ("no client gets into paris" in step["about"], twin.changes()) == (True, [])
    assert (ended.code, "from a serving site to a standby" in ended.document["summary"]) == (10, True)


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.parametrize("real", REAL, indirect=True)
def test_on_real_brokers(
    real: Lab, begun: Begun, inside: Command, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """What they say is written down; a rehearsal leaves nothing."""
    judged(real, *begun(real))
    topology = request.node.callspec.params["real"]
    if topology == BROKERSYNC:
        impatient(monkeypatch, canary_s=3.0)
    monkeypatch.setenv("DR_CTL_CONFIG", str(real.settings_path))

    ended = inside("rehearse", "--yes")
    cleaned = done(inside("rehearse", "clean", "--yes"))

    rows = {finding["id"] for finding in ended.document["findings"]}
    assert ended.code == (24 if topology == BROKERSYNC else 0), ended.document
    assert ("DR-REHEARSE-001" in rows) is (topology not in (MIRROR, CONTINUITY))
    assert "DR-REHEARSE-002" not in rows
    step = last_step(inside, cleaned, "")
    assert (step["event"], "no queue of a rehearsal is left" in step["text"]) == ("unneeded", True), step
