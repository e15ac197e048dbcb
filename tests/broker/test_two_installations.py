"""Two installations of one user on real brokers: what one left half done is no other one's to go on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all, killed_at, recorded, state_of

pytestmark = [pytest.mark.broker, pytest.mark.deep]


@pytest.mark.parametrize("word", ["resume", "abort"])
def test_an_interrupted_run_is_left_alone_by_the_other_installation(lab: Lab, tmp_path: Path, word: str) -> None:
    """Both are called lab, have the same sites and pairs, and one STATE."""
    state = tmp_path / "state"
    try:
        with Lab.up(tmp_path / "other" / "lab") as other, recorded(lab, tmp_path / "recorded") as (path, recorders):
            mine, theirs = Operator(lab, state, path), Operator(other, state)
            killed_at(mine, recorders, "paris", 1, "swapover", "--to", "paris", "--yes")
            before = state_of(other)

            ended = theirs.run(word, "--yes")

            assert (ended.code, ended.document["findings"][0]["id"]) == (10, "DR-ROLE-017"), ended.told
            assert state_of(other) == before
            assert mine.run("resume", "--yes").code == 0
            assert lab.admin("paris").clients_open()
    finally:
        end_all()
