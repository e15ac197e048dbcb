"""A password is used and never told: not on the screen, not in a document, not in anything that is kept."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dr_ctl_lab.twin.console import ADMIN
from tests.cli.conftest import Shell
from tests.cli.installation import NOT_NOW, Installation

WORD = "xyl0ph0n-über-Alles"
TOKEN = base64.b64encode(f"{ADMIN}:{WORD}".encode()).decode()

Password = Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]


def env(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("DR_CTL_TEST_WORD", WORD)
    return {"env": "DR_CTL_TEST_WORD"}


def file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (folder / "word").write_text(f"{WORD}\n", encoding="utf-8")
    return {"file": "word"}


def command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (folder / "word").write_text(f"{WORD}\n", encoding="utf-8")
    return {"command": ["cat", "word"]}


def plain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"plain": WORD}


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
    escaped = WORD.encode("ascii", "backslashreplace").decode()
    return [place for place, text in places.items() if any(each in text for each in (WORD, escaped, TOKEN))]


def everything(dr_ctl: Shell) -> list[str]:
    """What all commands print, with the causes of errors."""
    printed = []
    for words in COMMANDS:
        ended = dr_ctl("--verbose", *words)
        assert "defect" not in ended.out
        printed += [ended.out, ended.err]
    return printed


def test_it_is_not_told_where_brokers_do_not_answer(dr_ctl: Shell, nobody: str) -> None:
    dr_ctl.settings(nobody, nobody, {"plain": WORD})

    printed = everything(dr_ctl)

    assert any("connection refused" in text for text in printed)
    assert told_anywhere(dr_ctl, printed) == []


@pytest.mark.parametrize("form", [env, file, command, plain])
def test_it_is_used_in_a_whole_run_and_not_kept(
    dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch, form: Password
) -> None:
    installation.password(WORD)
    dr_ctl.settings(*installation.urls.values(), form(dr_ctl.folder, monkeypatch))

    printed = everything(dr_ctl)

    assert installation.london.logins == installation.paris.logins == {f"Basic {TOKEN}"}
    assert {"plan.json", "journal.jsonl", "result.json", "report.html"} <= {
        path.name for path in dr_ctl.state.rglob("*")
    }
    assert told_anywhere(dr_ctl, printed) == []


def test_it_is_not_told_where_a_broker_answers_with_an_error(dr_ctl: Shell, installation: Installation) -> None:
    installation.password(WORD)
    dr_ctl.settings(*installation.urls.values(), {"plain": WORD})
    installation.london.instead["read"] = NOT_NOW

    printed = everything(dr_ctl)

    assert any("not now" in text for text in printed)
    assert told_anywhere(dr_ctl, printed) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"plain": WORD, "env": "A"},
        {"plain": [WORD]},
        {"plian": WORD},
        {"command": ["sh", "-c", f"echo {WORD} >&2; exit 3"]},
        {"file": "word", "command": ["cat", "word"]},
    ],
    ids=["two forms", "not a text", "misspelt", "a command that fails", "two forms without the word"],
)
def test_it_is_not_told_where_the_settings_are_wrong(
    dr_ctl: Shell, nobody: str, monkeypatch: pytest.MonkeyPatch, damage: dict[str, Any]
) -> None:
    file(dr_ctl.folder, monkeypatch)
    dr_ctl.settings(nobody, nobody, damage)

    printed = everything(dr_ctl)

    assert any("password" in text or "secret" in text for text in printed)
    assert told_anywhere(dr_ctl, printed) == []


def test_a_refused_login_says_where_its_password_came_from_and_how_often_it_was_tried(
    dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DR_CTL_TEST_WORD", "wrong")
    dr_ctl.settings(installation.urls["london"], installation.urls["paris"], {"env": "DR_CTL_TEST_WORD"})

    ended = dr_ctl("status", "--json")

    assert (ended.code, ended.document["summary"]) == (22, "both sites were asked, and none let dr-ctl look")
    for each in ended.document["findings"]:
        assert "comes from the environment variable DR_CTL_TEST_WORD. One attempt was made here" in each["remedy"]
