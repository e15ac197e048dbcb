"""`runs bundle`, and that neither it nor a screen tells a password or lets a name command the terminal."""

import base64
import hashlib
import html
import json
import os
import subprocess
import sys
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
from tests.cli.sites import NOT_NOW, Sites
from tests.report.scribe import NAME, cut_off, done

WORD = "pa55\"w&rd-über<alles>/'x"
TOKENS = ("t0ken-of-a-hook", "t0ken-of-spark", "t0ken-of-an-address", "t0ken-of-a-command")
BEGAN = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)  # of the scribe's runs
WAYS: Mapping[str, dict[str, Any]] = {
    "env": {"env": "DR_CTL_TEST_WORD"},
    "file": {"file": "word"},
    "plain": {"plain": WORD},
    "command": {"command": ["sh", "-c", "cat word", TOKENS[3]]},
}
LOGIN = base64.b64encode(f"{ADMIN}:{WORD}".encode()).decode()
SEARCHED = [
    *(WORD, LOGIN, base64.b64encode(WORD.encode()).decode(), WORD.encode("ascii", "backslashreplace").decode()),
    *(json.dumps(WORD)[1:-1], json.dumps(WORD, ensure_ascii=False)[1:-1], repr(WORD)[1:-1]),
    *(quote(WORD, safe=""), html.escape(WORD)),
]


def bundled(dr_ctl: Shell, *words: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The command's document, and the bundle's files by their names in the run's folder."""
    ended = dr_ctl("runs", "bundle", *words, "--json")
    assert ended.code == 0, ended.out
    parts = {}
    with tarfile.open(dr_ctl.folder / ended.document["data"]["bundle"]) as archive:
        for member in archive.getmembers():
            assert member.mode == 0o600
            if (file := archive.extractfile(member)) is not None:
                parts[member.name.removeprefix(f"{ended.document['run']}/")] = file.read()
    return ended.document, parts


def test_the_settings_in_it_say_what_they_may(dr_ctl: Shell) -> None:
    done(dr_ctl.run())
    more = {"spark": {"master": "local[2]", "conf": {"spark.ui.enabled": "false"}}, "drain": {"timeout": "30s"}}
    dr_ctl.settings(password={"plain": WORD}, **more)

    settings = yaml.safe_load(bundled(dr_ctl)[1]["settings.yaml"])

    broker = settings["sites"]["london"]["brokers"][0]
    assert broker["password"] == {"plain": "***"}
    assert (broker["jolokia"], broker["username"]) == ("http://london:8161/console/jolokia", ADMIN)
    assert settings["spark"] == {"master": "local[2]", "conf": {"spark.ui.enabled": "***"}}
    assert settings["drain"] == {"timeout": 30.0}


def test_a_file_with_a_password_in_it_stays_here_and_that_is_told(dr_ctl: Shell, nobody: str) -> None:
    folder = dr_ctl.run()
    done(folder)
    dr_ctl.settings(nobody, nobody, {"plain": WORD})
    with (folder / "plan.json").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"why": f"Basic {LOGIN}"}))

    document, parts = bundled(dr_ctl)

    [text] = [each["text"] for each in document["findings"] if "plan.json" in each["text"]]
    assert text == "plan.json was left out: a password of the settings stands in it"
    assert "plan.json" not in parts
    assert "plan.json was left out" in " ".join(json.loads(parts["bundle.json"])["left_out"])


def test_it_can_be_verified_where_it_arrives(dr_ctl: Shell, tmp_path: Path) -> None:
    done(dr_ctl.run())

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
    done(dr_ctl.run())
    minutes = (-61, -59, -1, 0, 5)
    write([look(BEGAN + timedelta(minutes=each)) for each in minutes], dr_ctl.folder / "history")

    _, parts = bundled(dr_ctl)

    (name,) = [name for name in parts if name.endswith(".parquet")]
    stamps = pq.read_table(BytesIO(parts[name]))["ts"].to_pylist()
    assert name.startswith("history/date=2026-11-21/site=london/20261121T010100-")
    assert stamps == [BEGAN + timedelta(minutes=each) for each in (-59, -1, 0)]


def test_an_open_run_without_settings_is_bundled_and_what_is_missing_told(dr_ctl: Shell) -> None:
    cut_off(dr_ctl.run())

    document, parts = bundled(dr_ctl)

    assert {*parts} == {"bundle.json", "plan.json", "journal.jsonl", "report.html", "versions.json"}
    assert [each["id"] for each in document["findings"]] == ["DR-BUNDLE-001"]
    assert json.loads(parts["bundle.json"])["verified"]["verdict"] == "open"
    assert dr_ctl("runs", "bundle", "--out", "nowhere/b.tar.gz").code == 2


def test_settings_that_cannot_be_read_keep_nobody_from_a_bundle(dr_ctl: Shell) -> None:
    done(dr_ctl.run())
    (dr_ctl.folder / "dr-ctl.yaml").write_text(f"version: 1\npassword: {WORD!r}\n", encoding="utf-8")

    document, parts = bundled(dr_ctl)

    assert any("settings could not be read" in each["text"] for each in document["findings"])
    assert "settings.yaml" not in parts
    assert [name for name, content in parts.items() if WORD.encode() in content] == []


def look(at: datetime) -> Row:
    return Row(ts=at, site="london", pair="orders-1", kind="site", name="serving", start="s1")


COMMANDS = [
    ["status"],
    ["validate", "--json"],
    ["plan", "swapover", "--to", "paris", "--out", "plan.json"],
    ["swapover", "--to", "paris", "--json"],
    ["swapover", "--to", "paris", "--yes"],
    ["runs", "show", "--json"],
    ["runs", "report"],
]


def told_anywhere(dr_ctl: Shell, texts: list[str]) -> list[str]:
    """Every place where the password can be read."""
    kept = [path for path in (*dr_ctl.state.rglob("*"), dr_ctl.folder / "plan.json") if path.is_file()]
    places = {path.name: path.read_text(encoding="utf-8") for path in kept}
    places |= {f"output {number}": text for number, text in enumerate(texts)}
    return [place for place, text in places.items() if any(each in text for each in SEARCHED)]


def everything(dr_ctl: Shell) -> list[str]:
    """What all commands print, with the causes of errors."""
    printed = []
    for words in COMMANDS:
        ended = dr_ctl("--verbose", *words)
        assert "defect" not in ended.out
        printed += [ended.out, ended.err]
    return printed


@pytest.mark.parametrize("way", WAYS)
def test_it_is_used_and_not_kept(dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    sites.password(WORD)
    monkeypatch.setenv("DR_CTL_TEST_WORD", WORD)
    (dr_ctl.folder / "word").write_text(f"{WORD}\n", encoding="utf-8")
    more = {
        "hooks": {"tell": {"run": ["true", "--token", TOKENS[0]]}},
        "after": [{"run": ["true", f"--auth={TOKENS[0]}"], "on": ["ok"]}],
        "spark": {"master": f"sc://ada:{TOKENS[2]}@127.0.0.1:9/;token={TOKENS[2]}", "conf": {"fs.key": TOKENS[1]}},
    }
    dr_ctl.settings(*sites.urls.values(), WAYS[way], drain={"poll": "5ms"}, **more)
    write([look(system().now() - timedelta(minutes=5))], dr_ctl.folder / "history")

    printed = everything(dr_ctl)
    document, parts = bundled(dr_ctl)

    assert sites.london.logins == sites.paris.logins == {f"Basic {LOGIN}"}
    assert told_anywhere(dr_ctl, printed) == []
    assert {"plan.json", "journal.jsonl", "result.json", "report.html", "settings.yaml"} < parts.keys()
    [looks] = [name for name in parts if name.endswith(".parquet")]
    table = pq.read_table(BytesIO(parts[looks]))  # the texts in it are packed
    parts["texts"] = repr([table.column(name).to_pylist() for name in ("pair", "kind", "name", "start")]).encode()
    parts["all"] = (dr_ctl.folder / document["data"]["bundle"]).read_bytes()
    words = [each.encode() for each in (*SEARCHED, *TOKENS)]
    assert [(name, each) for name, content in parts.items() for each in words if each in content] == []
    assert document["findings"] == []


def test_it_is_not_told_where_brokers_answer_errors_or_nothing(dr_ctl: Shell, sites: Sites, nobody: str) -> None:
    sites.password(WORD)
    for urls, says in ((sites.urls.values(), "not now"), ((nobody, nobody), "connection refused")):
        dr_ctl.settings(*urls, {"plain": WORD})
        sites.london.instead["read"] = NOT_NOW

        printed = everything(dr_ctl)

        assert any(says in text for text in printed)
        assert told_anywhere(dr_ctl, printed) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"plain": WORD, "env": "A"},
        {"plain": [WORD]},
        {"plian": WORD},
        {"command": ["sh", "-c", "cat word >&2; exit 3"]},
        {"file": "word", "command": ["cat", "word"]},
    ],
)
def test_it_is_not_told_where_the_settings_are_wrong(dr_ctl: Shell, nobody: str, damage: dict[str, Any]) -> None:
    (dr_ctl.folder / "word").write_text(f"{WORD}\n", encoding="utf-8")
    dr_ctl.settings(nobody, nobody, damage)

    printed = everything(dr_ctl)

    assert any("password" in text or "secret" in text for text in printed)
    assert told_anywhere(dr_ctl, printed) == []


def test_a_refused_login_says_where_its_password_came_from_and_how_often_it_was_tried(
    dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DR_CTL_TEST_WORD", "wrong")
    dr_ctl.settings(sites.urls["london"], sites.urls["paris"], {"env": "DR_CTL_TEST_WORD"})

    ended = dr_ctl("status", "--json")

    assert (ended.code, ended.document["summary"]) == (22, "both sites were asked, and neither allowed a reading")
    for each in ended.document["findings"]:
        assert "comes from the environment variable DR_CTL_TEST_WORD. One attempt was made here" in each["remedy"]


FORGED = "paris serves; nothing is under way"
NAMES = [f"orders\x1b[2J\x1b]0;{FORGED}\x07", f"a\n{FORGED}\nb", "\u202eni.sredro", "größe→.in"]
SHOWING = [
    ["status"],
    ["validate"],
    ["plan", "swapover", "--to", "paris"],
    ["swapover", "--to", "paris", "--yes"],
    ["runs", "show"],
]


@pytest.fixture
def hostile(sites: Sites) -> Sites:
    """At London only, so that checks and plans name them, and paused by an administrator, so that status does."""
    for name in NAMES:
        sites.london.queue(name, paused=True)
    return sites


@pytest.mark.parametrize("words", SHOWING, ids=" ".join)
def test_no_name_commands_the_terminal_or_forges_a_line(dr_ctl: Shell, hostile: Sites, words: list[str]) -> None:
    if words[0] == "runs":
        dr_ctl("swapover", "--to", "paris", "--yes")

    ended = dr_ctl(*words)

    shown = ended.out + ended.err
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert FORGED not in [each.strip() for each in shown.splitlines()]
    assert words != ["status"] or all(each in shown for each in (r"a\npar", r"\x1b[2J", "größe→.in"))


@pytest.mark.wire
@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(("more", "shown"), [((), r"größe\u2192.in"), (("--json",), r"gr\u00f6\u00dfe\u2192.in")])
def test_a_stream_that_cannot_write_a_name_does_not_end_the_command(more: tuple[str, ...], shown: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    words = [sys.executable, "-m", "dr_ctl", "status", *more]

    text = subprocess.run(words, capture_output=True, encoding="latin-1", check=False, timeout=60, env=environment)

    assert (text.returncode, shown in text.stdout) == (0, True), text.stdout + text.stderr
