"""What is wrong with arguments and settings is told by its place and with a remedy, before any broker is asked."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(
    ("words", "text", "remedy"),
    [
        (["swapover"], "Missing option '--to'.", "See `dr-ctl swapover --help`."),
        (["swapover", "--to"], "Option '--to' requires an argument.", "See `dr-ctl swapover --help`."),
        (["swapover", "--too", "x"], "No such option: --too", "See `dr-ctl swapover --help`."),
        (["plan"], "Missing argument 'OPERATION'.", "See `dr-ctl plan --help`."),
        (["lab", "kill"], "Missing argument 'SITE'.", "See `dr-ctl lab kill --help`."),
        (["lab", "load", "--rate", "x"], "--rate", "See `dr-ctl lab load --help`."),
        (["status", "--output", "yaml"], "'yaml' is not one of", "See `dr-ctl status --help`."),
        (["runs", "list", "more"], "extra argument", "See `dr-ctl runs list --help`."),
        (["nothing"], "No such command 'nothing'.", "See `dr-ctl --help`."),
        (["runs", "nothing"], "No such command 'nothing'.", "See `dr-ctl runs --help`."),
        (["runbook"], "Missing command.", "See `dr-ctl runbook --help`."),
    ],
    ids=lambda told: " ".join(told) if isinstance(told, list) else "",
)
def test_a_wrong_word_is_named_with_where_help_is(dr_ctl: Shell, words: list[str], text: str, remedy: str) -> None:
    told, advice = usage(dr_ctl("--json", *words))

    assert text in told
    assert advice == remedy


@pytest.mark.parametrize(
    ("words", "text", "remedy"),
    [
        (["swapover", "--to", "rome"], "no site rome in the settings", "The sites are london and paris."),
        (
            ["swapover", "--to", "paris", "--expect-serving", "rome"],
            "no site rome in the settings",
            "The sites are london and paris.",
        ),
        (["swapover", "--to", "paris", "--timeout", "90"], "--timeout: '90' is not a duration", "--timeout 90s"),
        (["swapover", "--to", "paris", "--accept-difference", "=3"], "--accept-difference =3: not QUEUE=N", "=3."),
        (["swapover", "--to", "paris", "--accept-difference", "a=-1"], "not QUEUE=N", "orders.in=3"),
        (["swapover", "--to", "paris", "--accept-difference", "a=b=c"], "not QUEUE=N", "orders.in=3"),
        (["plan", "teleport", "--to", "paris"], "unknown operation teleport", "swapover"),
        (["validate", "--for", "fence"], "unknown operation fence", "swapover"),
        (["rpo", "estimate", "--site", "rome"], "no site rome", "london and paris"),
        (["rpo", "estimate", "--since", "noon"], "--since noon: neither a moment nor a duration", "2h"),
        (["rpo", "estimate", "--until", "2026-11-21T09:00"], "lacks its time zone", "Write Z"),
        (["runs", "show", "2026"], "no run with the name 2026", "runs list"),
        (["runs", "report"], "there is no run yet", "dr-ctl plan"),
        (["runbook", "show", "nothing"], "no runbook nothing", "There is failback, failover, swapover"),
    ],
    ids=lambda told: " ".join(told) if isinstance(told, list) else "",
)
def test_a_value_that_does_not_fit_is_named_with_what_would(
    dr_ctl: Shell, nobody: str, words: list[str], text: str, remedy: str
) -> None:
    told, advice = usage(dr_ctl("--json", *words))

    assert text in told
    assert remedy in advice


@pytest.mark.parametrize("words", [["validate"], ["status"], ["plan", "swapover", "--to", "paris"], ["resume"]])
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


def test_a_state_directory_of_its_own_is_used(dr_ctl: Shell, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "runs" / "20261121T020000Z-swapover-paris-7f3a").mkdir(parents=True)

    assert "20261121T020000Z" in dr_ctl("--state-dir", str(own), "runs", "list").out
    assert dr_ctl("runs", "list").out == "0 run(s)\n"
