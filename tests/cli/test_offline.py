"""`validate --offline`: the settings and what stands beside them, for a CI; no broker is asked, nothing is written."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda it: it.stem)
def test_every_example_stands_but_for_certificates_that_it_does_not_have(dr_ctl: Shell, example: Path) -> None:
    text = example.read_text(encoding="utf-8")

    ended = dr_ctl("--config", str(example), "validate", "--offline", "--json")

    assert (ended.code, ended.ids) == ((10, ["DR-SETTINGS-001"]) if PEM.search(text) else (0, [])), ended.document
    assert all(".tls.ca" in each["text"] for each in ended.document["findings"])  # these are the installation's own
    assert not dr_ctl.state.exists()


@pytest.mark.parametrize("name", ["LONDON PASSWORD", "$LONDON_PASSWORD", "", "9LIVES"])
def test_a_secret_of_a_variable_that_no_shell_can_set_is_a_mistake_of_the_file(dr_ctl: Shell, name: str) -> None:
    settings(dr_ctl, password={"env": name})

    ended = dr_ctl("validate", "--offline", "--json")

    assert ended.code == 2
    assert "is not the name of an environment variable, as in LONDON_PASSWORD" in ended.document["findings"][0]["text"]


def test_a_command_that_many_places_name_is_told_once(dr_ctl: Shell) -> None:
    after = [{"run": ["./tell.sh"], "on": [word]} for word in ("ok", "reverted")]
    settings(dr_ctl, hooks={"fence-host": {"run": ["./tell.sh"]}}, after=after)

    ended = dr_ctl("validate", "--offline", "--json")

    [finding] = ended.document["findings"]
    assert finding["text"].endswith("tell.sh is not there (hooks.fence-host.run; after.0.run; after.1.run)")
