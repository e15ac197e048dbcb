"""The commands in `examples/`, carried out as they stand there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest
import yaml

from tests.cli.conftest import Shell
from tests.cli.sites import Sites
from tests.cli.test_help import whole, why_not

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMANDS = {"ci-check.sh", "importer.sh", "incident.sh", "min-acks", "planned-move.sh", "rehearsal.sh", "tell.sh"}


def carried_out(
    dr_ctl: Shell, name: str, *words: str, programs: Path = Path(sys.executable).parent, **variables: str
) -> subprocess.CompletedProcess[str]:
    """An example as an operator's shell runs it, in the folder of the settings; `programs` is where dr-ctl is."""
    return subprocess.run(
        [EXAMPLES / name, *words],
        cwd=dr_ctl.folder,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_command_among_them_is_a_shell_script_that_parses() -> None:
    scripts = [path for path in EXAMPLES.iterdir() if os.access(path, os.X_OK) and path.is_file()]

    assert {script.name for script in scripts} == COMMANDS
    for script in scripts:
        subprocess.run(["sh", "-n", script], check=True, timeout=10)


@pytest.mark.parametrize(
    ("hooks", "code"), [({"fence-host": {"run": ["./gone.sh"]}}, 10), ({"tell": {"run": ["sh", "-c", "true"]}}, 30)]
)
def test_a_ci_checks_settings(dr_ctl: Shell, hooks: dict[str, object], code: int) -> None:
    dr_ctl.settings(hooks=hooks)

    ended = carried_out(dr_ctl, "ci-check.sh")

    assert ended.returncode == code, ended.stdout
    assert "holds     the settings can be read" in ended.stdout


STUB = """#!/bin/sh
echo "$@" >>typed
case "$*" in {words}* | "--quiet {words}"*) echo '{{"summary": "as dr-ctl says"}}'; exit {code} ;; esac
"""


def with_stub(dr_ctl: Shell, name: str, *words: str, at: str, code: int) -> subprocess.CompletedProcess[str]:
    program = dr_ctl.folder / "stub" / "dr-ctl"
    program.parent.mkdir()
    program.write_text(STUB.format(words=at, code=code), encoding="utf-8")
    program.chmod(0o755)
    return carried_out(dr_ctl, name, *words, programs=program.parent)


@pytest.mark.parametrize(
    ("at", "code", "says"),
    [
        ("swapover", 0, "paris serves"),
        ("swapover", 10, "refused, nothing was changed"),
        ("swapover", 20, "undone: the service is where it was"),
        ("swapover", 23, "look at it now:"),
        ("swapover", 130, "look at it now:"),
        ("validate", 10, ""),
        ("plan", 10, ""),
    ],
)
def test_a_planned_move_ends_as_it_ended(dr_ctl: Shell, at: str, code: int, says: str) -> None:
    ended = with_stub(dr_ctl, "planned-move.sh", "paris", "CHG-1", at=at, code=code)

    assert (ended.returncode, says in ended.stdout) == (code, True), ended.stdout
    typed = (dr_ctl.folder / "typed").read_text(encoding="utf-8")
    moved = "swapover --to paris --plan CHG-1.plan.json --yes --reason CHG-1 --json\n" in typed
    assert moved is (at == "swapover"), "nothing is moved where a question before it was not answered well"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (0, "paris serves"),
        (10, "nothing shows that the site is down"),
        (11, "the loss is above the limit"),
        (12, "the site is alive"),
        (13, "another run holds the lock"),
        (22, "type: dr-ctl status"),
        (3, "ended with 3"),
    ],
)
def test_an_incident_is_told_to_a_person_with_the_words_of_its_end(dr_ctl: Shell, code: int, says: str) -> None:
    ended = with_stub(dr_ctl, "incident.sh", "paris", at="failover", code=code)

    assert ended.returncode == code
    assert says in ended.stdout
    assert ended.stdout.endswith(": as dr-ctl says\n")


@pytest.mark.wire
@pytest.mark.deep
def test_a_planned_move_of_real_commands(dr_ctl: Shell, sites: Sites) -> None:
    ended = carried_out(dr_ctl, "planned-move.sh", "paris", "CHG-1")

    assert (ended.returncode, sites.paris.open) == (0, True), ended.stdout + ended.stderr
    assert json.loads((dr_ctl.folder / "CHG-1.json").read_text(encoding="utf-8"))["summary"].startswith(
        "moved from london to paris; verified: paris serves"
    )
    assert (dr_ctl.folder / "CHG-1.tar.gz").stat().st_size > 1000
    [run] = dr_ctl("runs", "list", "--json").document["data"]["runs"]
    assert run["reason"] == "CHG-1"


@pytest.mark.wire
@pytest.mark.deep
def test_an_incident_of_real_commands_accepts_no_loss_by_itself(dr_ctl: Shell, sites: Sites) -> None:
    alive = carried_out(dr_ctl, "incident.sh", "paris")
    sites.lose()
    above = carried_out(dr_ctl, "incident.sh", "paris")

    assert (alive.returncode, above.returncode) == (12, 11), above.stdout + above.stderr
    assert not sites.paris.open


@pytest.mark.wire
@pytest.mark.deep
def test_a_rehearsal_of_real_commands(dr_ctl: Shell, sites: Sites) -> None:
    listeners = {site.name: "stomp://{}:{}".format(*site.host.stomp) for site in sites.both}
    sites.logged_in(**listeners)

    ended = carried_out(dr_ctl, "rehearsal.sh", VARIATIONS="1")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    [run] = dr_ctl("runs", "list", "--json").document["data"]["runs"]
    assert (run["operation"], run["reason"], run["outcome"]) == ("rehearse", "monthly rehearsal", "ok")


def test_the_tasks_of_a_playbook_type_commands_that_there_are() -> None:
    tasks = yaml.safe_load((EXAMPLES / "ansible-tasks.yaml").read_text(encoding="utf-8"))

    typed = [task["ansible.builtin.command"]["argv"] for task in tasks if "ansible.builtin.command" in task]
    assert [words[:2] for words in typed] == [["dr-ctl", "validate"], ["dr-ctl", "swapover"], ["dr-ctl", "check"]]
    filled = [["paris" if "{{" in word else word for word in words[1:]] for words in typed]
    assert [why_not(words, whole()) for words in filled] == [None] * 3


@pytest.mark.deep
def test_the_tasks_of_a_playbook_judge_what_the_commands_answer(dr_ctl: Shell, sites: Sites) -> None:
    """Twice: the second time nothing is to be done."""
    tasks = yaml.safe_load((EXAMPLES / "ansible-tasks.yaml").read_text(encoding="utf-8"))
    language = jinja2.Environment(autoescape=False)
    language.filters["from_json"] = json.loads
    facts: dict[str, object] = {"site": "paris", "change": "CHG-1"}
    changed = []
    for task in tasks + tasks:
        if "ansible.builtin.debug" in task:
            text = language.from_string(task["ansible.builtin.debug"]["msg"]).render(facts)
            assert "paris serves" in text
            continue
        argv = [language.from_string(word).render(facts) for word in task["ansible.builtin.command"]["argv"]]
        assert argv[0] == "dr-ctl"
        ended = dr_ctl(*argv[1:])
        facts[task["register"]] = {"rc": ended.code, "stdout": ended.out}
        assert not language.compile_expression(str(task["failed_when"]))(**facts), ended.out
        changed.append(bool(language.compile_expression(str(task["changed_when"]))(**facts)))
    assert changed == [False, True, False, False, False, False]
