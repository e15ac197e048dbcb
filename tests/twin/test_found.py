"""The shortest stories of what the adversary of `adversary.py` found."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.agents.monitor import recording
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome, Refused
from dr_ctl.engine.plan import Call
from dr_ctl.settings.loader import load
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.rehearsal import ANY_FIGURE
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.topologies.fanout import stories as fanned_out
from tests.twin.classic_subject import ORDERS
from tests.twin.conftest import prompt
from tests.twin.matrix import done, lose_and_return, paused, put, serving
from tests.twin.subject import until
from tests.twin.test_crashes import Death, Died, consume_all
from tests.twin.test_remedies import filled, remedies


def found(ended: Ended) -> set[str]:
    return {each["id"] for each in ended.document["findings"]}


def bounds_said() -> list[Any]:
    """The bounds in the journal of the last run, in the order in which they were written."""
    journals = sorted(Path(os.environ["DR_CTL_STATE_DIR"]).glob("**/runs/*/journal.jsonl"))
    lines = [json.loads(line) for line in journals[-1].read_text(encoding="utf-8").splitlines()]
    return [line["evidence"]["bounds"] for line in lines if "bounds" in line["evidence"]]


def dies_once_open(patch: pytest.MonkeyPatch) -> None:
    """Have the process die as soon as it has opened a site."""
    post = Sender._post

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        outcomes = post(sender, calls)
        if any(call.goal is Goal.OPEN for call in calls):
            raise Died
        return outcomes

    patch.setattr(Sender, "_post", posted)


@pytest.fixture
def closed(twin: PlayedTwin, dr_ctl: Command) -> None:
    """Both sites are closed, London served last, and nobody deleted the copies of what its clients consumed."""
    for broker in twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()
    put(twin, "london", ORDERS, 10)
    twin.wait_mirrored()
    consume_all(twin, "london")
    done(dr_ctl("fence", "london", "--yes"))


@pytest.mark.parametrize("topology", [BROKERSYNC])
@pytest.mark.usefixtures("closed")
def test_a_site_with_copies_of_what_the_other_consumed_is_not_unfenced(twin: PlayedTwin, dr_ctl: Command) -> None:
    ended = dr_ctl("unfence", "paris", "--yes")

    assert ended.code == 10, ended.document
    assert "10 message(s) of orders.in lie at paris and not at london" in ended.document["summary"]
    assert serving(twin) == ()
    done(dr_ctl("unfence", "london", "--yes"))
    assert serving(twin) == ("london",)


@pytest.mark.parametrize("topology", [BROKERSYNC])
@pytest.mark.usefixtures("closed")
def test_who_opens_such_a_site_without_a_drain_is_told_what_may_come_twice(twin: PlayedTwin, dr_ctl: Command) -> None:
    dry = dr_ctl("activate", "paris", "--dry-run")
    ended = done(dr_ctl("activate", "paris", "--yes"))

    for each in (dry, ended):
        assert "DR-SYNC-005" in found(each), each.document
        assert "10 message(s) of orders.in lie at paris alone: so many may come twice" in each.told


@pytest.mark.parametrize(
    "topology", [MIRROR, pytest.param(CONTINUITY, marks=pytest.mark.deep), BRIDGES, BROKERSYNC, FANOUT]
)
def test_a_lost_site_is_not_opened_in_place_of_the_one_that_has_served_since(twin: PlayedTwin, dr_ctl: Command) -> None:
    """Its brokers are back and closed, and so are those of the other one after a restart."""
    lose_and_return(twin, dr_ctl)
    done(dr_ctl("fence", "paris", "--yes"))

    for words in (("unfence", "london"), ("activate", "london")):
        ended = dr_ctl(*words, "--yes")
        assert (ended.code, "DR-RETURN-008" in found(ended)) == (10, True), ended.document
    assert serving(twin) == ()
    told = [each["remedy"] for each in dr_ctl("status").document["findings"] if each["id"] == "DR-ROLE-015"]
    assert "`dr-ctl unfence paris`" in told[0]

    # The plugin lets clients wait for commands of its peer, which are kept out here.
    done(dr_ctl("unfence", "paris", "--yes"))
    assert serving(twin) == ("paris",)
    done(dr_ctl("reinstate", "london", "--yes"))


@pytest.mark.parametrize("topology", [FANOUT])
def test_no_move_goes_to_a_site_that_was_lost_and_is_not_taken_in(twin: PlayedTwin, dr_ctl: Command) -> None:
    lose_and_return(twin, dr_ctl)

    ended = dr_ctl("swapover", "--to", "london", "--yes")

    assert (ended.code, "DR-RETURN-008" in found(ended)) == (10, True), ended.document
    done(dr_ctl("reinstate", "london", "--yes"))
    done(dr_ctl("swapover", "--to", "london", "--yes"))
    assert dr_ctl("status").document["debts"] == []


@pytest.mark.parametrize("topology", [MIRROR, BROKERSYNC])
def test_a_failover_that_is_gone_on_with_says_what_it_said_before_clients_worked(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process dies once Paris is open, and somebody fences Paris; London is back before the run is gone on with."""
    put(twin, "london", ORDERS, 3)
    twin.wait_mirrored()
    with recording(load(twin.settings_path), every_s=0.1):
        twin.cut("london")
        until(lambda: not twin.host("london").broker.attached)
        consume_all(twin, "london")
        twin.kill("london")
        dry = ("failover", "--to", "paris", "--dry-run")
        until(lambda: dr_ctl(*dry).document["data"]["bounds"]["duplicates"]["at_most"] != 0)
        with monkeypatch.context() as patch:
            dies_once_open(patch)
            with pytest.raises(Died):
                typed(dr_ctl, "paris", "failover --to SITE")
    [said] = bounds_said()
    consume_all(twin, "paris")
    done(dr_ctl("fence", "paris", "--yes"))
    twin.heal()
    twin.start("london")

    ended = dr_ctl("resume", "--yes")

    assert serving(twin) == ("paris",), ended.document
    assert ended.document["data"]["bounds"] == said


def test_a_failover_that_costs_more_when_it_is_gone_on_with_names_the_command_that_accepts_it(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """London was closed and told its counts when it began, and is down since."""
    done(dr_ctl("fence", "london", "--yes"))
    with pytest.MonkeyPatch.context() as patch:
        Death(1, after=True).strike(patch)
        with pytest.raises(Died):
            dr_ctl("failover", "--to", "paris", "--yes", "--accept-loss", "0")
    twin.kill("london")

    refused = dr_ctl("resume", "--yes")

    assert refused.code == 11, refused.document
    [words] = [each for each in remedies(refused) if each.startswith("failover") and "accept" in each]
    done(dr_ctl(*filled(words)[0], "--yes"))
    assert serving(twin) == ("paris",)


def test_status_names_the_command_that_lifts_the_pauses_of_a_quiesce(twin: PlayedTwin, dr_ctl: Command) -> None:
    done(dr_ctl("quiesce", "london", "--yes"))

    [words] = remedies(dr_ctl("status"))

    done(dr_ctl(*filled(words)[0], "--yes"))
    assert remedies(dr_ctl("status")) == set()


@pytest.mark.parametrize("topology", [FANOUT])
def test_a_failover_back_to_a_site_that_was_lost_counts_all_that_the_other_took_since(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """Both are closed and hold as many messages, and not one that is the same."""
    fanned_out.send(twin, *"abcde")
    fanned_out.lose_london(twin, dr_ctl)
    fanned_out.consume(twin, "paris", *"abcde")
    fanned_out.send(twin, *"fghij", to=("paris",))
    done(dr_ctl("fence", "paris", "--yes"))
    twin.start("london")
    twin.close_clients("london")

    refused = dr_ctl("failover", "--to", "london", "--yes", "--accept-loss", "0")

    assert (refused.code, refused.document["data"]["bounds"]["lost"]["at_most"]) == (11, 5), refused.document


@pytest.mark.parametrize("topology", [SHARED_STORE])
def test_a_closed_holder_of_the_store_is_opened_by_what_status_and_a_refusal_name(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    done(dr_ctl("fence", "london", "--yes"))

    refused = dr_ctl("activate", "london", "--yes")

    assert (refused.code, "DR-STORE-011" in found(refused)) == (10, True), refused.document
    assert remedies(refused) == remedies(dr_ctl("status")) == {"unfence london"}
    done(dr_ctl("unfence", "london", "--yes"))
    assert serving(twin) == ("london",)


LOSABLE = [MIRROR, CONTINUITY, BRIDGES, BROKERSYNC, FANOUT]


def typed(dr_ctl: Command, site: str, words: str) -> Ended:
    """A command that a remedy names, with that site where the remedy leaves it open."""
    command = words.replace("SITE", site).split()
    if not words.startswith("failover"):
        return dr_ctl(*command, "--yes")
    ended = dr_ctl(*command, "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes")
    return dr_ctl(*command, *ANY_FIGURE, "--yes") if ended.code == ExitCode.LOSS_REFUSED else ended


@pytest.mark.parametrize(
    "topology", [pytest.param(each, marks=pytest.mark.deep) if each == CONTINUITY else each for each in LOSABLE]
)
def test_where_each_site_was_lost_once_status_names_the_command_that_opens_one(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt(monkeypatch)
    put(twin, "london", ORDERS, 3)
    for lost, to in (("london", "paris"), ("paris", "london")):
        twin.kill(lost)
        typed(dr_ctl, to, "failover --to SITE")
        twin.start(lost)
        twin.close_clients(lost)
        if lost == "london":
            twin.kill("paris")
    done(dr_ctl("fence", "london", "--yes"))
    assert serving(twin) == ()

    [remedy] = [each["remedy"] for each in dr_ctl("status").document["findings"] if each["id"] == "DR-ROLE-015"]
    opened = typed(dr_ctl, "london", "failover --to SITE")
    taken_in = typed(dr_ctl, "paris", "reinstate SITE")

    assert "`dr-ctl failover --to SITE`" in remedy
    assert "`dr-ctl reinstate SITE`" in remedy
    assert (opened.code in (0, 21), taken_in.code, serving(twin)) == (True, 0, ("london",)), taken_in.document
    assert (dr_ctl("status").document["debts"], paused(twin)) == ([], [])


@pytest.mark.parametrize("topology", [each for each in LOSABLE if each != CONTINUITY])  # it keeps one site closed
def test_a_lost_site_that_serves_in_place_of_its_survivor_is_told_with_what_ends_that(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody fenced the wrong one of two that were open."""
    prompt(monkeypatch)
    put(twin, "london", ORDERS, 3)
    lose_and_return(twin, dr_ctl)
    done(dr_ctl("fence", "paris", "--yes"))
    twin.open_clients("london")
    assert serving(twin) == ("london",)

    [told] = [each for each in dr_ctl("status").document["findings"] if each["id"] == "DR-RETURN-003"]
    words = re.findall("`dr-ctl ([^`]+)`", told["remedy"])
    ended = [typed(dr_ctl, "", each) for each in words[:2]]

    assert words[:2] == ["failover --to london", "reinstate paris"]
    assert [each.code for each in ended] == [0, 0], [each.document for each in ended]
    assert (serving(twin), dr_ctl("status").document["debts"]) == (("london",), [])


@pytest.mark.parametrize(("topology", "again"), [(BROKERSYNC, ()), (FANOUT, ()), (MIRROR, ("london",))])
def test_a_run_is_not_undone_once_its_target_may_have_served_and_was_started_anew(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, topology: str, again: tuple[str, ...]
) -> None:
    """Clients consumed there, which no link of these brokers tells the other site; a mirror tells it."""
    for broker in twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()
    if topology == FANOUT:
        fanned_out.send(twin, *"abcde")
    else:
        put(twin, "london", ORDERS, 5)
        twin.wait_mirrored()
    with monkeypatch.context() as patch:
        dies_once_open(patch)
        with pytest.raises(Died):
            dr_ctl("swapover", "--to", "paris", "--yes")
    assert serving(twin) == ("paris",)
    if topology == FANOUT:
        fanned_out.consume(twin, "paris", *"abc", noted=False)
    else:
        consume_all(twin, "paris")
    twin.wait_mirrored()
    twin.kill("paris")
    twin.start("paris")
    twin.close_clients("paris")
    monkeypatch.setattr(Verifier, "verify", lambda *_: Refused("the gate is shut"))

    ended = dr_ctl("resume", "--yes")

    assert (ended.code, serving(twin)) == (20 if again else 23, again), ended.document
    assert again or "paris is closed, and may have served before a new start" in ended.document["summary"]


def dies_before_it_opens(patch: pytest.MonkeyPatch) -> None:
    """Have the process die as soon as it is about to open a site."""
    post = Sender._post

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        if any(call.goal is Goal.OPEN for call in calls):
            raise Died
        return post(sender, calls)

    patch.setattr(Sender, "_post", posted)


@pytest.mark.parametrize("topology", [MIRROR, BROKERSYNC, FANOUT])
def test_an_open_failover_whose_lost_site_serves_is_ended_by_the_way_that_status_names(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No failover goes on beside a site that serves, so status does not recommend that, and says who is served."""
    prompt(monkeypatch)
    put(twin, "london", ORDERS, 3)
    twin.wait_mirrored()
    twin.kill("london")
    with monkeypatch.context() as patch:
        dies_before_it_opens(patch)
        with pytest.raises(Died):
            dr_ctl("failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
    twin.start("london")
    twin.open_clients("london")
    assert serving(twin) == ("london",)

    refused = dr_ctl("resume", "--yes")
    [way] = dr_ctl("status").document["data"]["ways_out"]
    ended = dr_ctl(*way["command"].removeprefix("dr-ctl ").split(), "--yes")

    assert refused.code == 12, refused.document
    assert "`dr-ctl status` says what ends the open failover" in refused.document["findings"][0]["remedy"]
    assert (way["serves"], way["recommended"], serving(twin)) == ("london", True, ("london",))
    told = dr_ctl("status").document
    assert told["data"]["open_run"] is None, ended.document
    if told["debts"]:
        done(typed(dr_ctl, "london", "failover --to SITE"))
        done(typed(dr_ctl, "paris", "reinstate SITE"))
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
