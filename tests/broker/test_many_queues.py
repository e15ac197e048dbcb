"""A pair with many queues moves under load: most of them in one call each way, and none that somebody paused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all, on_queue, recorded, state_of

pytestmark = [pytest.mark.broker, pytest.mark.deep]

ALIKE = tuple(f"load.{number}" for number in range(100, 220))
BY_HAND = "load.205"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("many") / "lab", queues=("orders.in", *ALIKE)) as lab:
        yield lab
    end_all()


def test_most_queues_move_in_one_call_and_what_is_paused_by_hand_stays_so(lab: Lab, tmp_path: Path) -> None:
    on_queue(lab, "london", BY_HAND, "pause()")

    with recorded(lab, tmp_path / "recorded") as (settings, recorders), lab.load(100, queues=("orders.in",)) as load:
        operator = Operator(lab, tmp_path / "state", settings)
        load.wait_for(100)
        ended = operator.run("swapover", "--to", "paris", "--yes")
        load.wait_for(load.counts().sent + 100)
        verdict = load.stop()
        seen = recorders["london"].changes

    assert ended.code == 0, ended.document
    for verb in ("pause()", "resume()"):
        beans = [each.bean for each in seen if each.operation == verb]
        assert len([bean for bean in beans if bean.endswith('queue="load.1*"')]) == 1, beans
        assert len(beans) < len(ALIKE) / 2
        assert not [bean for bean in beans if BY_HAND in bean]
    assert state_of(lab)["london"]["orders-1"]["paused"] == [BY_HAND]
    assert (len(verdict.lost), len(verdict.duplicates), len(verdict.redelivered)) == (0, 0, 0)
