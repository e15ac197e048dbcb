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

    def test_status_says_who_is_served_after_it(self, dr_ctl: Shell, installation: Installation) -> None:
        nobody = dr_ctl("status", "--json").document["data"]["ways_out"]
        installation.london.let_in()
        london = dr_ctl("status", "--json").document["data"]["ways_out"]

        assert ([each["serves"] for each in nobody], [each["serves"] for each in london]) == ([None], ["london"])


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
