"""`runs bundle`: what is in it, what is told to be missing, and that no byte of it tells a password."""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
import yaml

from dr_ctl.core.system import system
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from dr_ctl_lab.twin.console import ADMIN
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.moving import swapover
from tests.report.scribe import NAME, cut_off, done

WORD = "pa55\"w&rd-über<alles>/'x"
TOKENS = ("t0ken-of-a-hook", "t0ken-of-spark", "t0ken-of-an-address", "t0ken-of-a-command")
BEGAN = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)  # of the scribe's runs
FORMS: Mapping[str, dict[str, Any]] = {
    "env": {"env": "DR_CTL_TEST_WORD"},
    "file": {"file": "word"},
    "plain": {"plain": WORD},
    "command": {"command": ["./word.sh", "--token", TOKENS[3]]},
}


def unpacked(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert {each.mode for each in members} == {0o600}
        read = {each.name: archive.extractfile(each) for each in members}
        return {name: file.read() for name, file in read.items() if file is not None}


def bundled(dr_ctl: Shell, *words: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The command's document, and the bundle's files by their names in the run's folder."""
    ended = dr_ctl("runs", "bundle", *words, "--json")
    assert ended.code == 0, ended.out
    run = ended.document["run"]
    parts = unpacked(dr_ctl.folder / ended.document["data"]["bundle"])
    return ended.document, {name.removeprefix(f"{run}/"): content for name, content in parts.items()}


def past(dr_ctl: Shell, name: str = NAME) -> Path:
    folder = dr_ctl.state / "runs" / name
    folder.mkdir(parents=True)
    return folder


def words_of(content: bytes) -> bytes:
    """The texts in a file of the history, which are packed there."""
    table = pq.read_table(BytesIO(content))
    return repr([table.column(name).unique().to_pylist() for name in ("pair", "kind", "name", "start")]).encode()


def test_no_byte_of_it_tells_a_password_in_any_form(
    dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.password(WORD)
    monkeypatch.setenv("DR_CTL_TEST_WORD", WORD)
    (dr_ctl.folder / "word").write_text(f"{WORD}\n", encoding="utf-8")
    more = {
        "hooks": {"tell": {"run": ["true", "--token", TOKENS[0]]}},
        "after": [{"run": ["true", f"--auth={TOKENS[0]}"], "on": ["ok"]}],
        "spark": {"master": f"sc://ada:{TOKENS[2]}@127.0.0.1:9/;token={TOKENS[2]}", "conf": {"fs.key": TOKENS[1]}},
    }
    dr_ctl.settings(*installation.urls.values(), FORMS["env"], drain={"poll": "5ms"}, **more)
    began = system().now()
    write([look(began - timedelta(minutes=5))], dr_ctl.folder / "history")
    assert swapover(dr_ctl, "--yes").code == 0

    escaped = json.dumps(WORD)[1:-1], json.dumps(WORD, ensure_ascii=False)[1:-1], quote(WORD, safe="")
    login = base64.b64encode(f"{ADMIN}:{WORD}".encode()).decode()
    searched = [each.encode() for each in (WORD, *escaped, login, base64.b64encode(WORD.encode()).decode(), *TOKENS)]
    for form, secret in FORMS.items():
        dr_ctl.settings(*installation.urls.values(), secret, drain={"poll": "5ms"}, **more)

        document, parts = bundled(dr_ctl, "--out", f"{form}.tar.gz")

        assert {"plan.json", "journal.jsonl", "result.json", "report.html", "settings.yaml"} < parts.keys()
        looks = [name for name in parts if name.endswith(".parquet")]
        assert len(looks) == 1
        readable = {**parts, looks[0]: parts[looks[0]] + words_of(parts[looks[0]])}
        assert [(name, each) for name, content in readable.items() for each in searched if each in content] == []
        assert document["findings"] == []
        packed = (dr_ctl.folder / f"{form}.tar.gz").read_bytes()
        assert [each for each in searched if each in packed] == []


def test_the_settings_in_it_say_what_they_may(dr_ctl: Shell) -> None:
    done(past(dr_ctl))
    secret = {"plain": WORD}
    more = {"spark": {"master": "local[2]", "conf": {"spark.ui.enabled": "false"}}, "drain": {"timeout": "30s"}}
    dr_ctl.settings("http://london:8161/console/jolokia", "http://paris:8161/console/jolokia", secret, **more)

    settings = yaml.safe_load(bundled(dr_ctl)[1]["settings.yaml"])

    broker = settings["sites"]["london"]["brokers"][0]
    assert broker["password"] == {"plain": "***"}
    assert (broker["jolokia"], broker["username"]) == ("http://london:8161/console/jolokia", ADMIN)
    assert settings["spark"] == {"master": "local[2]", "conf": {"spark.ui.enabled": "***"}}
    assert settings["drain"] == {"timeout": 30.0}


def test_a_file_with_a_password_in_it_stays_here_and_that_is_told(dr_ctl: Shell, nobody: str) -> None:
    folder = past(dr_ctl)
    done(folder)
    dr_ctl.settings(nobody, nobody, {"plain": WORD})
    with (folder / "plan.json").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"why": f"Basic {base64.b64encode(f'{ADMIN}:{WORD}'.encode()).decode()}"}))

    document, parts = bundled(dr_ctl)

    assert [each["text"] for each in document["findings"] if "plan.json" in each["text"]] == [
        "plan.json was left out: a password of the settings stands in it"
    ]
    assert "plan.json" not in parts
    assert "plan.json was left out" in " ".join(json.loads(parts["bundle.json"])["left_out"])


def test_it_can_be_verified_where_it_arrives(dr_ctl: Shell, tmp_path: Path) -> None:
    done(past(dr_ctl))

    document, parts = bundled(dr_ctl)

    manifest = json.loads(parts["bundle.json"])
    assert manifest["verified"]["verdict"] == "whole"
    assert {name: each["sha256"] for name, each in manifest["files"].items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in parts.items() if name != "bundle.json"
    }
    packed = (dr_ctl.folder / f"{NAME}.tar.gz").read_bytes()
    assert document["data"]["sha256"] == hashlib.sha256(packed).hexdigest()
    versions = json.loads(parts["versions.json"])
    assert versions["packages"]["pydantic"] is not None
    there = tmp_path / "there"
    for name, content in parts.items():
        path = there / "runs" / NAME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert dr_ctl("--state-dir", str(there), "runs", "verify", NAME).code == 0


def test_the_hour_before_the_run_goes_with_it_and_no_more(dr_ctl: Shell, nobody: str) -> None:
    done(past(dr_ctl))
    minutes = (-61, -59, -1, 0, 5)
    write([look(BEGAN + timedelta(minutes=each)) for each in minutes], dr_ctl.folder / "history")

    _, parts = bundled(dr_ctl)

    (name,) = [name for name in parts if name.endswith(".parquet")]
    stamps = pq.read_table(BytesIO(parts[name]))["ts"].to_pylist()
    assert name.startswith("history/date=2026-11-21/site=london/20261121T010100-")
    assert stamps == [BEGAN + timedelta(minutes=each) for each in (-59, -1, 0)]


def test_an_open_run_without_settings_is_bundled_and_what_is_missing_told(dr_ctl: Shell) -> None:
    cut_off(past(dr_ctl))

    document, parts = bundled(dr_ctl)

    assert {*parts} == {"bundle.json", "plan.json", "journal.jsonl", "report.html", "versions.json"}
    assert [each["id"] for each in document["findings"]] == ["DR-BUNDLE-001"]
    assert json.loads(parts["bundle.json"])["verified"]["verdict"] == "open"


def test_settings_that_cannot_be_read_keep_nobody_from_a_bundle(dr_ctl: Shell) -> None:
    done(past(dr_ctl))
    (dr_ctl.folder / "dr-ctl.yaml").write_text(f"version: 1\npassword: {WORD!r}\n", encoding="utf-8")

    document, parts = bundled(dr_ctl)

    assert any("settings could not be read" in each["text"] for each in document["findings"])
    assert "settings.yaml" not in parts
    assert [name for name, content in parts.items() if WORD.encode() in content] == []


def test_a_bundle_that_cannot_be_written_is_a_mistake(dr_ctl: Shell) -> None:
    done(past(dr_ctl))

    assert dr_ctl("runs", "bundle", "--out", "nowhere/b.tar.gz").code == 2


def look(at: datetime) -> Row:
    return Row(ts=at, site="london", pair="orders-1", kind="site", name="serving", start="s1")
