"""`validate --offline`: the settings and what stands beside them, for a CI; no broker is asked, nothing is written."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Shell

ROOT = Path(__file__).parents[2]
EXAMPLES = [each for each in sorted((ROOT / "examples").glob("*.yaml")) if "\ntopology:" in each.read_text("utf-8")]
PEM = re.compile(r"^ +tls: .*ca: ", re.MULTILINE)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is called, and no password is known."""

    def never(*_: Any) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", never)
    monkeypatch.setattr(socket, "getaddrinfo", never)
    for site in ("LONDON", "PARIS"):
        monkeypatch.delenv(f"{site}_PASSWORD", raising=False)


def settings(dr_ctl: Shell, **more: Any) -> None:
    dr_ctl.settings("http://london:8161/console/jolokia", "http://paris:8161/console/jolokia", **more)


def changed(dr_ctl: Shell, change: Callable[[dict[str, Any]], object]) -> None:
    path = dr_ctl.folder / "dr-ctl.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


def script(dr_ctl: Shell, name: str = "fence.sh", *, mode: int = 0o755) -> None:
    path = dr_ctl.folder / name
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(mode)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda it: it.stem)
def test_every_example_stands_but_for_certificates_that_it_does_not_have(dr_ctl: Shell, example: Path) -> None:
    text = example.read_text(encoding="utf-8")

    ended = dr_ctl("--config", str(example), "validate", "--offline", "--json")

    assert (ended.code, ended.ids) == ((10, ["DR-SETTINGS-001"]) if PEM.search(text) else (0, [])), ended.document
    assert all(".tls.ca" in each["text"] for each in ended.document["findings"])  # these are the installation's own
    assert not dr_ctl.state.exists()


def test_what_is_wrong_in_the_file_is_told_with_its_line(dr_ctl: Shell) -> None:
    settings(dr_ctl, objective={"recovery": "2m"})

    ended = dr_ctl("validate", "--offline", "--json")

    assert ended.code == 2
    assert "unknown key; did you mean objectives?" in ended.document["findings"][0]["text"]


@pytest.mark.parametrize("name", ["LONDON PASSWORD", "$LONDON_PASSWORD", "", "9LIVES"])
def test_a_secret_of_a_variable_that_no_shell_can_set_is_a_mistake_of_the_file(dr_ctl: Shell, name: str) -> None:
    settings(dr_ctl, password={"env": name})

    ended = dr_ctl("validate", "--offline", "--json")

    assert ended.code == 2
    assert "is not the name of an environment variable, as in LONDON_PASSWORD" in ended.document["findings"][0]["text"]


def hook_missing(dr_ctl: Shell) -> None:
    settings(dr_ctl, hooks={"fence-host": {"run": ["./fence.sh"]}})


def hook_not_executable(dr_ctl: Shell) -> None:
    settings(dr_ctl, hooks={"fence-host": {"run": ["./fence.sh"]}})
    script(dr_ctl, mode=0o644)


def program_elsewhere(dr_ctl: Shell) -> None:
    settings(dr_ctl, after=[{"run": ["/opt/ops/tell"], "on": ["ok"]}])


def program_unknown(dr_ctl: Shell) -> None:
    settings(dr_ctl, after=[{"run": ["no-such-program-here", "--now"], "on": ["ok"]}])


def script_of_an_interpreter(dr_ctl: Shell) -> None:
    settings(dr_ctl, after=[{"run": ["sh", "./tell.sh"], "on": ["ok"]}])


def authority_missing(dr_ctl: Shell) -> None:
    settings(dr_ctl)
    changed(dr_ctl, lambda told: told["sites"]["london"].update(tls={"ca": "ca.pem"}))


def authority_is_none(dr_ctl: Shell) -> None:
    authority_missing(dr_ctl)
    (dr_ctl.folder / "ca.pem").write_text("no certificate\n", encoding="utf-8")


def runbooks_missing(dr_ctl: Shell) -> None:
    settings(dr_ctl, runbooks="books")


def runbook_broken(dr_ctl: Shell) -> None:
    hook_unknown(dr_ctl)
    (dr_ctl.folder / "books" / "swapover.yaml").write_text("runbook: swapover\n", encoding="utf-8")


def hook_unknown(dr_ctl: Shell) -> None:
    settings(dr_ctl, runbooks="books", hooks={})
    (dr_ctl.folder / "books").mkdir()
    for each in (ROOT / "runbooks").glob("*.yaml"):
        text = each.read_text(encoding="utf-8").replace("steps:\n", "steps:\n  - hook: tell-all\n", 1)
        (dr_ctl.folder / "books" / each.name).write_text(text, encoding="utf-8")


def hook_unused(dr_ctl: Shell) -> None:
    settings(dr_ctl, hooks={"tell": {"run": ["sh", "-c", "true"]}})


def password_in_the_file(dr_ctl: Shell) -> None:
    settings(dr_ctl, password={"plain": "hunter2"})


def certificates_not_verified(dr_ctl: Shell) -> None:
    settings(dr_ctl)
    changed(dr_ctl, lambda told: told["sites"]["london"].update(tls={"verify": False}))


@pytest.mark.parametrize(
    ("make", "code", "ids", "says"),
    [
        (hook_missing, 10, ["DR-SETTINGS-001"], "fence.sh is not there (hooks.fence-host.run)"),
        (hook_not_executable, 10, ["DR-SETTINGS-001"], "fence.sh cannot be executed (hooks.fence-host.run)"),
        (program_elsewhere, 0, ["DR-SETTINGS-002"], "/opt/ops/tell is not on this machine (after.0.run)"),
        (program_unknown, 0, ["DR-SETTINGS-002"], "no program no-such-program-here is on the PATH"),
        (script_of_an_interpreter, 0, ["DR-SETTINGS-002"], "tell.sh is not there (after.0.run)"),
        (authority_missing, 10, ["DR-SETTINGS-001"], "ca.pem is not there (sites.london.tls.ca)"),
        (authority_is_none, 10, ["DR-SETTINGS-001"], "ca.pem holds no certificates"),
        (runbooks_missing, 10, ["DR-SETTINGS-001"], "books is not there (runbooks)"),
        (hook_unknown, 10, ["DR-SETTINGS-004"] * 3, "the settings have no hook tell-all"),
        (runbook_broken, 10, ["DR-BOOK-001"] * 2 + ["DR-SETTINGS-004"] * 2, "swapover.yaml:1: steps: is a list"),
        (hook_unused, 0, ["DR-SETTINGS-005"], "hooks.tell: no runbook names it"),
        (password_in_the_file, 0, ["DR-SETTINGS-003"] * 2, "sites.london.brokers.orders-1.password: a password stands"),
        (certificates_not_verified, 0, ["DR-TLS-001"], "the certificates of its brokers are not verified"),
    ],
)
def test_what_stands_beside_the_file_is_looked_at(
    dr_ctl: Shell, make: Callable[[Shell], None], code: int, ids: list[str], says: str
) -> None:
    make(dr_ctl)

    ended = dr_ctl("validate", "--offline", "--json")

    assert (ended.code, ended.ids) == (code, ids), ended.document
    assert any(says in each["text"] for each in ended.document["findings"]), ended.document
    assert all(each["remedy"] for each in ended.document["findings"])
    assert "hunter2" not in ended.out
    assert dr_ctl("validate", "--offline", "--warn-exit").code == (code or 30)
    assert not dr_ctl.state.exists()


def test_two_brokers_with_one_address_are_told(dr_ctl: Shell) -> None:
    dr_ctl.settings("http://london:8161/console/jolokia", "HTTP://london:8161/console/jolokia/")

    ended = dr_ctl("validate", "--offline", "--json")

    [told] = [each for each in ended.document["findings"] if each["id"] == "DR-SETTINGS-006"]
    assert (ended.code, told["text"]) == (10, "london/orders-1 and paris/orders-1 have one management address")


def test_a_command_that_many_places_name_is_told_once(dr_ctl: Shell) -> None:
    after = [{"run": ["./tell.sh"], "on": [word]} for word in ("ok", "reverted")]
    settings(dr_ctl, hooks={"fence-host": {"run": ["./tell.sh"]}}, after=after)

    ended = dr_ctl("validate", "--offline", "--json")

    [finding] = ended.document["findings"]
    assert finding["text"].endswith("tell.sh is not there (hooks.fence-host.run; after.0.run; after.1.run)")


def test_an_operation_and_offline_contradict_each_other(dr_ctl: Shell) -> None:
    settings(dr_ctl)

    assert dr_ctl("validate", "--offline", "--for", "swapover").code == 2
    assert dr_ctl("validate", "--offline", "--to", "paris").code == 2


def test_verbose_lists_each_check_and_counts_them(dr_ctl: Shell) -> None:
    hook_missing(dr_ctl)

    text = dr_ctl("validate", "--offline", "--verbose").out

    assert "   holds     the settings can be read (" in text
    assert "   fails     every command that the settings name can be started (./fence.sh); DR-SETTINGS-001" in text
    assert "11 checks: 10 hold, 1 fails\n1 error, no warnings\n" in text
