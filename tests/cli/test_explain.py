"""`explain`: a code or a finding at length, without settings and brokers."""

from __future__ import annotations

import pytest

from dr_ctl.application import explaining
from dr_ctl.core.model import ExitCode
from tests.cli.conftest import Shell


@pytest.mark.parametrize(
    "word", ["22", "DR-UNKNOWN", "DR-RUN-003", "dr-run-003", "reverted", "drain_timeout", *map(str, map(int, ExitCode))]
)
def test_each_says_what_is_so_what_to_do_what_it_costs_and_whether_it_can_be_undone(dr_ctl: Shell, word: str) -> None:
    ended = dr_ctl("explain", word)

    assert (ended.code, ended.err) == (0, "")
    heads = [line.partition(":")[0] for line in ended.out.partition("\n\n")[2].splitlines() if line[0] != " "]
    assert heads == ["To do", "Effect", "Undo"]
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    assert not (dr_ctl.folder / "dr-ctl.yaml").exists()


def test_a_script_gets_the_same(dr_ctl: Shell) -> None:
    entry = explaining.findings()["DR-ALIVE-001"]

    told = dr_ctl("explain", "DR-ALIVE-001", "--json").document["data"]

    assert told == {"id": entry.name, "what": entry.what, "do": entry.do, "costs": entry.costs, "undo": entry.undo}


@pytest.mark.parametrize("word", ["99", "DR-NONE-001", "22.5", ""])
def test_what_there_is_not_is_a_usage_error_with_its_remedy(dr_ctl: Shell, word: str) -> None:
    ended = dr_ctl("explain", word, "--json")

    assert ended.code == 2
    assert "dr-ctl explain 22" in ended.document["findings"][0]["remedy"]
