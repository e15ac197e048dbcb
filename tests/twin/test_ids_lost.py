"""Ids of processed messages that never reached the other site: their messages are not processed twice unannounced."""

from __future__ import annotations

import json

import pytest
import yaml

from dr_ctl.core.model import ExitCode
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES
from tests.conftest import Command
from tests.twin.test_bridges import IN, OUT, at, put
from tests.twin.test_trim import worked_off

TO_PARIS = ("swapover", "--to", "paris", "--yes")
UNKNOWN = ("--accept-loss", "unknown", "--accept-duplicates", "unknown")


@pytest.fixture
def topology() -> str:
    return BRIDGES


def lost(twin: PlayedTwin, worked: int, ids: int) -> None:
    """London works off so many of ten, and so many of their ids are not in the store of Paris."""
    put(twin, IN, 10)
    twin.wait_mirrored()
    worked_off(twin, IN, worked)
    with twin.still():
        store = at(twin, "paris").ids
        for queue, ident in sorted(store.every())[:ids]:
            store.forget(queue, ident)


def test_a_move_is_refused_before_its_fence_where_the_target_lacks_ids_of_its_copies(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    lost(twin, 6, 2)

    ended = dr_ctl(*TO_PARIS)

    assert ended.code == ExitCode.PRECHECK_FAILED, ended.document
    [finding] = [each for each in ended.document["findings"] if each["id"] == "DR-BRIDGE-018"]
    assert finding["text"].startswith(f"2 message(s) of {IN} may come twice: ")
    steps = dr_ctl("runs", "show").document["data"]["steps"]
    assert "fence" not in {each["step"].split(":")[0].split()[-1] for each in steps if each["event"] == "done"}
    with twin.still():
        assert at(twin, "london").serves_queue(IN)


@pytest.mark.parametrize(
    ("said", "code"), [("2", ExitCode.OK), ("1", ExitCode.PRECHECK_FAILED), ("3", ExitCode.PRECHECK_FAILED)]
)
def test_a_move_with_exactly_the_accepted_number_that_may_come_twice_goes_on(
    twin: PlayedTwin, dr_ctl: Command, said: str, code: ExitCode
) -> None:
    lost(twin, 6, 2)

    ended = dr_ctl(*TO_PARIS, "--accept-difference", f"{IN}={said}")

    assert ended.code == code, ended.document


def test_an_id_that_is_announced_once_more_lets_the_move_go_on(twin: PlayedTwin, dr_ctl: Command) -> None:
    lost(twin, 6, 2)
    with twin.still():
        lacking = at(twin, "london").ids.every() - at(twin, "paris").ids.every()
        for queue, ident in lacking:
            at(twin, "paris").ids.add(queue, ident, here=False)

    assert dr_ctl(*TO_PARIS).code == ExitCode.OK


def test_an_id_whose_message_lies_in_no_copy_keeps_no_move_back(twin: PlayedTwin, dr_ctl: Command) -> None:
    lost(twin, 6, 2)
    with twin.still():
        at(twin, "paris").queues[IN].messages.clear()
        at(twin, "london").queues[IN].messages.clear()

    assert dr_ctl(*TO_PARIS).code == ExitCode.OK


def test_lost_ids_of_another_queue_keep_no_part_back(twin: PlayedTwin, dr_ctl: Command) -> None:
    lost(twin, 6, 2)

    assert dr_ctl(*TO_PARIS, "--queues", OUT).code == ExitCode.OK
    assert dr_ctl(*TO_PARIS, "--queues", IN).code == ExitCode.PRECHECK_FAILED


def test_ids_that_are_only_under_way_keep_no_move_back(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, IN, 10)
    twin.wait_mirrored()
    worked_off(twin, IN, 6)

    assert dr_ctl(*TO_PARIS).code == ExitCode.OK


def test_an_id_that_is_lost_behind_the_fence_is_found_by_the_gate(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dr_ctl.topologies.bridges.acts.shipping._ids_lost", lambda *_: [])  # not seen while serving
    lost(twin, 6, 2)

    ended = dr_ctl(*TO_PARIS)

    assert (ended.code, "DR-BRIDGE-018" in str(ended.document["findings"])) == (ExitCode.REVERTED, True)


def test_stores_that_cannot_be_compared_are_told_and_keep_no_move_back(twin: PlayedTwin, dr_ctl: Command) -> None:
    lost(twin, 6, 0)
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    settings["sites"]["paris"]["brokers"][0]["ids"]["sqlite"] = str(twin.settings_path.parent / "gone.sqlite")
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")

    ended = dr_ctl(*TO_PARIS)

    assert ended.code == ExitCode.OK, ended.document
    assert "the id stores could not be compared" in str(ended.document["findings"])


def test_a_return_names_what_the_lost_sites_consumers_had_done_before_anybody_delivers_it(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """A consumer at London had written two ids down when it was lost, and announced none; the messages were not shipped
    yet. They come with the residue, and nothing at Paris says that they are done."""
    twin.cut("london")
    put(twin, IN, 10)
    with twin.still():
        london = at(twin, "london")
        in_hand = [london.identity(each) for each in london.queues[IN].live()][:2]
        for ident in in_hand:
            london.ids.add(IN, ident, here=True)
    twin.kill("london")
    assert dr_ctl("failover", "--to", "paris", *UNKNOWN, "--yes").code == 0
    twin.heal()
    twin.start("london")

    ended = dr_ctl("reinstate", "london", "--yes")

    assert ended.code == ExitCode.OK, ended.document
    [finding] = [each for each in ended.document["findings"] if each["id"] == "DR-RETURN-010"]
    assert finding["text"].startswith(f"2 message(s) of {IN} come as duplicates at paris: consumers of london had done")
    assert all(ident in finding["text"] for ident in in_hand)


def test_a_return_without_stores_says_that_nobody_can_tell(twin: PlayedTwin, dr_ctl: Command) -> None:
    told = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    for site in told["sites"].values():
        del site["brokers"][0]["ids"]
    twin.settings_path.write_text(json.dumps(told), encoding="utf-8")
    put(twin, IN, 3)
    twin.kill("london")
    assert dr_ctl("failover", "--to", "paris", *UNKNOWN, "--yes").code == 0
    twin.start("london")

    ended = dr_ctl("reinstate", "london", "--yes")

    assert ended.code == ExitCode.OK, ended.document
    [finding] = [each for each in ended.document["findings"] if each["id"] == "DR-RETURN-010"]
    assert "the settings do not name both stores of ids" in finding["text"]
