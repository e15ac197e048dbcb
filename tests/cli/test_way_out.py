"""A run that cannot be written down, or cannot be read any more, ends in words, and there is a way out of it."""

from __future__ import annotations

import errno
import os

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.moving import begun
from tests.report.scribe import NAME

MOVE = ("swapover", "--to", "paris", "--yes", "--json")


def test_a_journal_that_cannot_be_written_behind_the_fence_says_who_may_be_locked_out(
    dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fdatasync

    def failing(file: int) -> None:
        if not installation.london.open:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing)
        ended = dr_ctl(*MOVE)

    assert (ended.code, ended.ids) == (1, ["DR-RUN-002"])
    assert ended.document["run"] in ended.document["summary"]
    assert "clients may be locked out of both sites" in ended.document["summary"]
    assert "`dr-ctl resume` or `dr-ctl abort`" in ended.document["findings"][0]["remedy"]
    assert not installation.london.open
    assert dr_ctl("abort", "--yes").code == 0
    assert installation.london.open


class TestDamaged:
    """A run whose process died behind its fence, and whose journal has one bad byte since."""

    @pytest.fixture(autouse=True)
    def _damaged(self, dr_ctl: Shell, installation: Installation) -> None:
        begun(dr_ctl, installation, "quiesce", "fence")
        path = dr_ctl.state / "runs" / NAME / "journal.jsonl"
        lines = path.read_bytes().split(b"\n")
        lines[1] = lines[1].replace(b"started", b"startet", 1)
        path.write_bytes(b"\n".join(lines))

    def test_it_names_the_way_out(self, dr_ctl: Shell, installation: Installation) -> None:
        for words in (["resume", "--yes"], ["abort", "--yes"]):
            ended = dr_ctl(*words, "--json")
            assert ended.code == 1, words
            assert "dr-ctl abort --forget RUN --reason TEXT" in ended.document["findings"][0]["remedy"], words

    def test_status_says_who_is_served_after_it(self, dr_ctl: Shell, installation: Installation) -> None:
        nobody = dr_ctl("status", "--json").document["data"]["ways_out"]
        installation.london.let_in()
        london = dr_ctl("status", "--json").document["data"]["ways_out"]

        assert ([each["serves"] for each in nobody], [each["serves"] for each in london]) == ([None], ["london"])

    def test_it_is_given_up_and_other_runs_may_begin(self, dr_ctl: Shell, installation: Installation) -> None:
        before = installation.settable

        unexplained = dr_ctl("abort", "--forget", NAME, "--yes", "--json")
        given_up = dr_ctl("abort", "--forget", NAME, "--reason", "nobody is served", "--yes", "--json")
        again = dr_ctl("abort", "--forget", NAME, "--reason", "nobody is served", "--yes", "--json")

        assert (unexplained.code, given_up.code, again.code) == (2, 0, 10)
        assert given_up.ids == ["DR-RUN-007"]
        assert installation.settable == before
        [row] = dr_ctl("runs", "list", "--json").document["data"]["runs"]
        assert row["outcome"] == "unknown"
        assert row["summary"] == "given up: nobody is served; nothing was undone"
        assert dr_ctl("unfence", "london", "--yes").code == 0
        assert installation.london.open

    def test_a_failover_that_takes_its_place_need_not_read_it(self, dr_ctl: Shell, installation: Installation) -> None:
        installation.twin.kill("london")
        reason = ("--presume-down", "london", "--reason", "it burnt")

        ended = dr_ctl(
            "failover",
            "--to",
            "paris",
            "--accept-loss",
            "unknown",
            "--accept-duplicates",
            "unknown",
            *reason,
            "--yes",
            "--json",
        )

        assert ended.code == 0, ended.document
        assert installation.paris.open
        assert dr_ctl("status", "--json").document["data"]["open_run"] is None


def test_one_that_lives_or_was_not_agreed_to_is_not_given_up(dr_ctl: Shell, installation: Installation) -> None:
    begun(dr_ctl, installation, "quiesce")

    dry = dr_ctl("abort", "--forget", NAME, "--reason", "x", "--dry-run", "--json")
    nobody_asked = dr_ctl("abort", "--forget", NAME, "--reason", "x", "--json")

    assert (dry.code, nobody_asked.code) == (0, 14)
    assert dr_ctl("status", "--json").document["data"]["open_run"] == NAME


@pytest.mark.parametrize("text", ["{", '[{"kind": "of another version"}]', '{"a": 1}'])
def test_debts_that_this_version_cannot_read_end_no_command(
    dr_ctl: Shell, installation: Installation, text: str
) -> None:
    dr_ctl.state.mkdir(exist_ok=True)
    (dr_ctl.state / "debts.json").write_text(text, encoding="utf-8")

    status, moved = dr_ctl("status", "--json"), dr_ctl(*MOVE)

    assert (status.code, moved.code) == (0, 0)
    assert "DR-DEBT-001" in status.ids
    assert "DR-DEBT-001" in moved.ids
    assert (dr_ctl.state / "debts.json").read_text(encoding="utf-8") == text
