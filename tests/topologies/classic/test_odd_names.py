"""Queues of a real Classic broker whose names hold control characters."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from dr_ctl_lab.lab.kinds import BROKERSYNC
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all

pytestmark = [pytest.mark.broker, pytest.mark.deep]

ODD: Final = ("t\tx", "e\x1b[2J", "one\x01x")
UNSEEN: Final = "a\nb"  # its bean would have no valid name, so that the broker registers none


def test_every_command_works_beside_them_and_one_with_a_line_break_is_in_no_listing(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, queues=("orders.in",)) as lab:
        try:
            for name in (*ODD, UNSEEN):
                lab.admin("london").create_queue(name)
            operator = Operator(lab, tmp_path / "state")
            looked = operator.run("validate", "--to", "paris")
            ends = [operator.run("swapover", "--to", to, "--yes").code for to in ("paris", "london")]
        finally:
            end_all()

    told = [each["text"] for each in looked.document["findings"] if each["id"] == "DR-SYNC-002"]
    assert all(name in told[0] for name in ODD)
    assert UNSEEN not in told[0]
    assert ends == [0, 0]
