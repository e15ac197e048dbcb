"""Help: every command has it, names its options, and speaks of this tool alone."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import version

import pytest

from dr_ctl.cli.added import TEXTS, added
from dr_ctl.cli.app import app
from dr_ctl.cli.helping import SECTIONS
from dr_ctl.core.exit_codes import MEANINGS
from dr_ctl.core.model import ExitCode
from tests.cli.conftest import Shell
from tests.cli.test_commands_in_texts import whole, why_not

COMMON = ("--output", "--json", "--quiet", "--warn-exit", "-h, --help")
GROUPS = ("runs", "runbook", "rpo", "lab", "link")


def commands() -> set[str]:
    """Every command there is, by its whole name."""
    found = {str(each.name) for each in app.registered_commands}
    groups = [(group.name, group.typer_instance) for group in app.registered_groups]
    for name, group in (*groups, *((name, added(name)) for name in TEXTS)):
        assert group is not None
        for command in group.registered_commands:
            found.add(f"{name} {command.name}" if name and command.name != name else str(command.name))
    return found


COMMANDS = sorted(commands())


def test_the_groups_are_these() -> None:
    assert {each.name for each in app.registered_groups if each.name} | {"lab"} == set(GROUPS)


@pytest.mark.parametrize("name", TEXTS)
def test_what_help_says_of_an_added_command_is_what_it_says_itself(dr_ctl: Shell, name: str) -> None:
    shown = " ".join(dr_ctl(name, "--help").out.split())

    assert TEXTS[name] in shown


def test_without_the_package_that_adds_them_its_commands_are_unknown(
    dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())

    ended = dr_ctl("lab", "status", "--json")

    assert (ended.code, ended.document["summary"]) == (2, "No such command 'lab'.")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example_that_can_be_typed(dr_ctl: Shell, name: str) -> None:
    ended = dr_ctl(*name.split(), "--help")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: dr-ctl {name} ")
    assert [word for word in COMMON if word not in ended.out] == []
    assert [word for word in ("click", "Traceback", "Session", "None") if word in ended.out] == []
    [example] = re.findall(r"^  Example:\n    dr-ctl (.+)$", ended.out, re.MULTILINE)
    assert example.startswith(name)
    assert why_not(shlex.split(example), whole()) is None
    words = shlex.split(f"{name} --config x.yaml --state-dir y --verbose --no-color --json --quiet --warn-exit --help")
    assert why_not(words, whole()) is None, "what every command takes may stand behind it"


def test_what_stands_behind_a_command_wins(dr_ctl: Shell) -> None:
    ended = dr_ctl("--config", "before.yaml", "status", "--config", "behind.yaml", "--json")

    assert (ended.code, "behind.yaml" in ended.document["summary"]) == (2, True)


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_names_its_commands(dr_ctl: Shell, group: str) -> None:
    ended = dr_ctl(group, "--help")

    assert (ended.code, ended.err) == (0, "")
    assert all(f"  {name.split()[1]} " in ended.out for name in COMMANDS if name.startswith(f"{group} "))


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_without_a_command_all_of_them_are_shown(dr_ctl: Shell, words: list[str]) -> None:
    ended = dr_ctl(*words)

    assert (ended.code, ended.err) == (0, "")
    assert all(f"  {name} " in ended.out for name in (*GROUPS, *(name for name in COMMANDS if " " not in name)))
    assert all(f"  {option} " in ended.out for option in ("--config", "--state-dir", "--verbose", "--no-color"))


def test_help_asks_nothing_of_settings_or_brokers(dr_ctl: Shell) -> None:
    (dr_ctl.folder / "dr-ctl.yaml").write_text("not: [settings", encoding="utf-8")

    assert dr_ctl("swapover", "--help").code == 0
    assert not dr_ctl.state.exists()


def test_commands_stand_by_what_they_are_for_in_whole_sentences_with_the_exit_codes(dr_ctl: Shell) -> None:
    told = dr_ctl("--help").out

    shown = {each.split()[0] if each.split()[0] in GROUPS else each for each in commands()}
    assert {name for names in SECTIONS.values() for name in names} == shown
    assert [title for title in SECTIONS if f"\n{title}:\n" not in told] == []
    assert "..." not in told.partition("\n")[2]
    assert set(MEANINGS) == set(ExitCode)
    for code, meaning in MEANINGS.items():
        assert re.search(rf"^  {int(code)} +{re.escape(meaning.brief)}$", told, re.MULTILINE), code


def test_the_last_word_of_a_command_is_no_group_for_its_name(dr_ctl: Shell) -> None:
    """A lab's directory may be called lab, a site runs: the command is carried out, not explained."""
    for words in (("lab", "status", "--dir", "lab"), ("swapover", "--to", "runs")):
        ended = dr_ctl(*words)

        assert ended.code == 2
        assert "Usage:" not in ended.out


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_shows_its_help(dr_ctl: Shell, group: str) -> None:
    alone = dr_ctl(group)

    assert alone.code == 0
    assert alone.out == dr_ctl(group, "--help").out
    assert "..." not in alone.out.partition("\n")[2].replace("[FILE]...", "")


HELPED = [["-h"], ["status", "-h"], ["runs", "-h"], ["runs", "list", "-h"], ["lab", "up", "-h"]]


@pytest.mark.parametrize("words", HELPED)
def test_one_letter_asks_for_help_everywhere(dr_ctl: Shell, words: list[str]) -> None:
    ended = dr_ctl(*words)

    assert (ended.code, ended.err, ended.out) == (0, "", dr_ctl(*words[:-1], "--help").out)


def test_it_says_which_version_it_is(dr_ctl: Shell) -> None:
    ended = dr_ctl("--version")

    assert (ended.code, ended.out, ended.err) == (0, f"dr-ctl {version('dr-ctl')}\n", "")
