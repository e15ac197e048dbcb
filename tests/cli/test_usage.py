"""What is wrong with arguments and settings is told by its place and with a remedy, before any broker is asked."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Ended, Shell

BROKEN = """\
version: 2
name: orders
topology: artemis-mirror
sites:
  London:
    brokers:
      - name: orders-1
        jolokia: london:8161
        username: dr-ctl
        password: {plain: a, env: B}
        clients: [clients]
        colour: red
  paris:
    brokers:
      - name: orders-2
        jolokia: http://paris:8161/console/jolokia
        username: dr-ctl
        password: {env: B}
        clients: []
drain: {timeout: soon}
"""
PLACES = [
    "dr-ctl.yaml:1:10: version:",
    "dr-ctl.yaml:5:3: sites.London:",
    "dr-ctl.yaml:7:15: sites:",
    "dr-ctl.yaml:8:18: sites.London.brokers.orders-1.jolokia:",
    "dr-ctl.yaml:10:19: sites.London.brokers.orders-1.password:",
    "dr-ctl.yaml:12:9: sites.London.brokers.orders-1.colour: unknown key",
    "dr-ctl.yaml:15:15: sites:",
    "dr-ctl.yaml:19:18: sites.paris.brokers.orders-2.clients:",
    "dr-ctl.yaml:20:18: drain.timeout:",
]


def usage(ended: Ended) -> tuple[str, str]:
    """The one thing that is wrong, and its remedy."""
    assert (ended.code, ended.document["outcome"]) == (2, "usage"), ended.document
    [finding] = ended.document["findings"]
    assert finding["severity"] == "error"
    return finding["text"], finding["remedy"]


@pytest.mark.parametrize("words", [["validate"], ["resume"]])
def test_everything_wrong_with_the_settings_is_told_at_once_with_its_place(dr_ctl: Shell, words: list[str]) -> None:
    (dr_ctl.folder / "dr-ctl.yaml").write_text(BROKEN, encoding="utf-8")

    told, advice = usage(dr_ctl("--json", *words))

    lines = told.splitlines()
    assert [line for place, line in zip(PLACES, lines, strict=True) if not line.startswith(place)] == []
    assert "Mend the lines named" in advice
    assert all(line in dr_ctl(*words).out for line in lines)
    assert not dr_ctl.state.exists()


@pytest.mark.parametrize("given", ["--config", "DR_CTL_CONFIG"])
def test_a_settings_file_that_is_not_there_is_told_by_its_path(
    dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    missing = str(dr_ctl.folder / "missing.yaml")
    if given == "DR_CTL_CONFIG":
        monkeypatch.setenv(given, missing)

    told, remedy = usage(dr_ctl(*(["--config", missing] if given == "--config" else []), "status", "--json"))

    assert told == f"{missing}: cannot be read: No such file or directory"
    assert "--config" in remedy


def test_verbose_shows_the_cause_and_nothing_else_does(dr_ctl: Shell) -> None:
    plain, verbose = dr_ctl("runs", "show"), dr_ctl("--verbose", "runs", "show")

    assert (plain.code, verbose.code, plain.err) == (2, 2, "")
    assert plain.out == verbose.out
    assert "Traceback" in verbose.err
