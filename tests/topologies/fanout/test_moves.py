"""What a move does with messages that lie at both sites, at one alone, or that were consumed: told by their ids."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.agents.monitor import recording
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.settings.loader import load
from dr_ctl.topologies.common.sender import Sender
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.broker import DLQ
from dr_ctl_lab.twin.classic.fanout.broker import ID_HEADER, LEAST, OWN, PRODUCERS, FanoutBroker
from dr_ctl_lab.twin.messages import Message
from tests.broker.driving import Ended, until
from tests.conftest import Command

Q = "orders.in"
SITES = ("london", "paris")


def at(twin: PlayedTwin, site: str) -> FanoutBroker:
    found = twin.host(site).broker
    assert isinstance(found, FanoutBroker)
    return found


def send(twin: PlayedTwin, *ids: str, to: tuple[str, ...] = SITES, queue: str = Q, **headers: str) -> None:
    with twin.still():
        for ident in ids:
            for site in to:
                told = {ID_HEADER: ident, **headers}
                broker = at(twin, site)
                broker.route(Message(broker.next_number(), queue, f"body {ident}".encode(), text=True, headers=told))


def consume(twin: PlayedTwin, site: str, *ids: str, noted: bool = True) -> None:
    """As a client does; `noted` where it wrote the id down."""
    with twin.still():
        queue = at(twin, site).queues[Q]
        for ident in ids:
            [message] = [each for each in queue.live() if each.headers[ID_HEADER] == ident]
            if noted:
                at(twin, site).ids.add(Q, ident, here=True)
            at(twin, site).dispatched[Q] += 1
            at(twin, site).remove(queue, message)


def lying(twin: PlayedTwin, site: str, queue: str = Q) -> list[str]:
    with twin.still():
        found = at(twin, site).queues.get(queue)
        return [each.headers[ID_HEADER] for each in found.messages.values()] if found is not None else []


def least(twin: PlayedTwin) -> str:
    return (twin.directory / LEAST).read_text().strip()


def without(twin: PlayedTwin, *keys: str) -> None:
    """Take keys out of the settings: of the installation, and of each broker."""
    told: dict[str, Any] = yaml.safe_load(twin.settings_path.read_text())
    for key in keys:
        told.pop(key, None)
        for site in told["sites"].values():
            for each in (site, *site["brokers"]):
                each.pop(key, None)
    twin.settings_path.write_text(json.dumps(told))


def found(ended: Ended) -> set[str]:
    return {each["id"] for each in ended.document["findings"]}


def listed(key: str) -> dict[str, list[str]]:
    """What the last run's steps listed by id."""
    [*_, last] = sorted(Path(os.environ["DR_CTL_STATE_DIR"]).glob("**/runs/*"))
    told: dict[str, list[str]] = {}
    for line in (last / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        for queue, ids in json.loads(line).get("evidence", {}).get(key, {}).items():
            told.setdefault(queue, []).extend(ids)
    return told


def lose_london(twin: PlayedTwin, dr_ctl: Command) -> Ended:
    twin.kill("london")
    ended = dr_ctl("failover", "--to", "paris", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes")
    assert ended.code == 0, ended.told
    return ended


def test_a_swapover_removes_by_id_what_was_consumed_and_leaves_what_lies_there_alone(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    send(twin, "a", "b", "c")
    send(twin, "only", to=("paris",))
    consume(twin, "london", "a")

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert ended.code == 0, ended.told
    assert lying(twin, "paris") == ["b", "c", "only"]
    assert lying(twin, "london") == ["b", "c"]
    assert listed("duplicates") == {Q: ["a"]}
    assert at(twin, "london").acceptors[PRODUCERS].started


def test_a_site_that_lacks_messages_is_not_moved_to_until_a_return_has_copied_them(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    send(twin, "a")
    send(twin, "b", "c", to=("london",), priority_of="mine")

    refused = dr_ctl("swapover", "--to", "paris", "--yes")
    taken_in = dr_ctl("reinstate", "paris", "--yes")
    moved = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (refused.code, found(refused)) == (10, {"DR-PARITY-001"}), refused.told
    assert (taken_in.code, moved.code) == (0, 0), (taken_in.told, moved.told)
    assert sorted(lying(twin, "paris")) == ["a", "b", "c"]
    copied = [each for each in at(twin, "paris").queues[Q].messages.values() if each.headers[ID_HEADER] == "b"]
    assert [(each.body, each.text, each.durable, each.headers["priority_of"]) for each in copied] == [
        (b"body b", True, True, "mine")
    ]


def test_without_a_way_in_of_its_own_nothing_can_be_copied(twin: PlayedTwin, dr_ctl: Command) -> None:
    without(twin, "sync")
    send(twin, "a", to=("london",))

    ended = dr_ctl("reinstate", "paris", "--yes")

    assert ended.code == 10, ended.told
    assert "the settings name no `sync:`" in ended.told
    assert "DR-FAN-003" in found(dr_ctl("validate", "--to", "paris"))


def test_a_lost_site_costs_nothing_confirmed_and_what_it_had_done_is_removed_before_anybody_is_let_in(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    send(twin, "a", "b", "c")
    consume(twin, "london", "a", "b")

    ended = lose_london(twin, dr_ctl)

    assert lying(twin, "paris") == ["c"]
    assert listed("duplicates") == {Q: ["a", "b"]}
    assert least(twin) == "1"
    assert "DR-FAN-005" not in found(ended)


def test_what_the_store_knows_costs_a_failover_no_duplicates_as_long_as_it_can_be_read(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    store = twin.settings_path.parent / yaml.safe_load(twin.settings_path.read_text())["ids"]["sqlite"]
    failover = ("failover", "--to", "paris", "--yes")
    send(twin, "a", "b", "c")
    consume(twin, "london", "a", "b")
    with recording(load(twin.settings_path), every_s=0.1):
        until(lambda: dr_ctl("status").document["data"]["last_look"] is not None)
        twin.kill("london")
        until(lambda: dr_ctl(*failover, "--dry-run").code == 0)
    hidden = store.rename(store.with_suffix(".gone"))

    refused = dr_ctl(*failover)
    dry = dr_ctl(*failover, "--accept-duplicates", "3", "--dry-run")
    hidden.rename(store)
    ended = dr_ctl(*failover)

    assert refused.code == 10, refused.told
    assert "up to 3 message(s) at paris come as duplicates: the store of processed ids" in refused.told
    assert (dry.code, ended.code) == (0, 0), (dry.told, ended.told)
    assert ended.document["data"]["bounds"]["duplicates"]["at_most"] == 0
    assert lying(twin, "paris") == ["c"]


def test_where_nobody_can_say_what_was_done_it_comes_twice_and_that_is_said(twin: PlayedTwin, dr_ctl: Command) -> None:
    without(twin, "ids")
    send(twin, "a", "b")
    consume(twin, "london", "a")

    ended = lose_london(twin, dr_ctl)

    assert lying(twin, "paris") == ["a", "b"]
    assert "DR-FAN-005" in found(ended)


def test_a_site_that_is_back_is_evened_out_by_id_and_producers_have_to_ask_both_again(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    send(twin, "a", "b")
    send(twin, "only", to=("london",))  # what no second site confirmed
    lose_london(twin, dr_ctl)
    send(twin, "late", to=("paris",))
    consume(twin, "paris", "a")
    twin.start("london")

    ended = dr_ctl("reinstate", "london", "--yes")

    assert ended.code == 0, ended.told
    assert sorted(lying(twin, "london")) == ["b", "late", "only"]
    assert sorted(lying(twin, "paris")) == ["b", "late"]
    assert (listed("duplicates")[Q], listed("alone")[Q]) == (["a"], ["only", "only"])
    assert "DR-FAN-006" in found(ended)
    assert least(twin) == "2"
    assert dr_ctl("status").document["debts"] == []


def test_a_site_that_came_back_open_is_closed_first(twin: PlayedTwin, dr_ctl: Command) -> None:
    send(twin, "a", "b")
    lose_london(twin, dr_ctl)
    consume(twin, "paris", "a")
    twin.start("london")
    twin.open_clients("london")

    ended = dr_ctl("reinstate", "london", "--yes")

    assert ended.code == 0, ended.told
    assert not at(twin, "london").serves
    assert lying(twin, "london") == ["b"]
    assert "DR-RETURN-002" in found(ended)


def test_trim_removes_at_the_waiting_site_what_was_consumed(twin: PlayedTwin, dr_ctl: Command) -> None:
    send(twin, "a", "b", "c")
    consume(twin, "london", "b", "c")

    shown = dr_ctl("trim", "paris", "--dry-run")
    untouched = lying(twin, "paris")
    ended = dr_ctl("trim", "paris", "--yes")

    assert (shown.code, ended.code) == (0, 0), ended.told
    assert (untouched, lying(twin, "paris")) == (["a", "b", "c"], ["a"])
    assert at(twin, "london").serves


@pytest.mark.parametrize("sites", [SITES, SITES[:1], SITES[1:]])
def test_messages_without_an_id_and_listings_that_are_cut_end_a_move_before_the_fence(
    twin: PlayedTwin, dr_ctl: Command, sites: Sequence[str]
) -> None:
    send(twin, "a", "b", "c")
    consume(twin, "london", "c")  # Paris holds as many, whatever came to London alone
    for site in SITES:
        at(twin, site).browse_page = 1
    cut = dr_ctl("swapover", "--to", "paris", "--yes")
    for site in SITES:
        at(twin, site).browse_page = 400
    with twin.still():
        for site in sites:
            at(twin, site).route(Message(at(twin, site).next_number(), Q, b"who?", text=True, headers={}))
    nameless = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (cut.code, nameless.code) == (10, 10), (cut.told, nameless.told)
    assert "limits what a listing shows" in cut.told
    assert f"has no {ID_HEADER}" in nameless.told
    assert at(twin, "london").serves


def test_a_closed_connector_of_the_producers_speaks_against_a_move(twin: PlayedTwin, dr_ctl: Command) -> None:
    with twin.still():
        at(twin, "paris").acceptors[PRODUCERS].started = False

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, "DR-FAN-001" in found(ended)) == (10, True), ended.told


def test_dr_ctls_own_connector_is_no_clients(twin: PlayedTwin, dr_ctl: Command) -> None:
    told = dr_ctl("validate", "--to", "paris")

    assert told.code == 0, told.told
    assert found(told) == {"DR-LOCK-001", "DR-LOSS-001", "DR-MON-002"}  # no monitor has looked, so no price is known
    assert at(twin, "london").acceptors[OWN].started


def test_dead_letters_of_the_waiting_site_are_counted_before_and_after(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead_letter() -> None:
        with twin.still():
            paris = at(twin, "paris")
            paris.route(Message(paris.next_number(), DLQ, b"dead", text=True, headers={}))

    dead_letter()
    calm = dr_ctl("swapover", "--to", "paris", "--yes")
    assert dr_ctl("swapover", "--to", "london", "--yes").code == 0
    post = Sender._post

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        outcomes = post(sender, calls)
        if any(call.goal is Goal.OPEN for call in calls):
            dead_letter()
        return outcomes

    monkeypatch.setattr(Sender, "_post", posted)
    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (calm.code, "DR-DLQ-001" in found(calm)) == (0, False), calm.told
    assert ended.code == 0, ended.told
    assert f"paris/orders-1 {DLQ}: 1" in next(
        each["text"] for each in ended.document["findings"] if each["id"] == "DR-DLQ-001"
    )
