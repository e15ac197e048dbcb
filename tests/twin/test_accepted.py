"""What a failover may cost beside what is accepted: loss, and what comes twice."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml

from dr_ctl.agents.monitor import recording
from dr_ctl.core.model import ExitCode
from dr_ctl.settings.loader import load
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.kinds import BROKERSYNC, MIRROR
from tests.conftest import Command
from tests.twin.classic_subject import ORDERS
from tests.twin.matrix import put, serving
from tests.twin.subject import until
from tests.twin.test_crashes import consume_all


@pytest.fixture
def topology() -> str:
    return MIRROR


def limited(twin: PlayedTwin, **objectives: object) -> None:
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    settings["objectives"] = {"loss": {"messages": 0}, **objectives}
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")


LOST = ("failover", "--to", "paris", "--accept-loss", "unknown")


def test_without_a_limit_duplicates_are_asked_for_by_name(twin: PlayedTwin, dr_ctl: Command) -> None:
    limited(twin)
    twin.kill("london")

    refused = dr_ctl(*LOST, "--yes")
    ended = dr_ctl(*LOST, "--accept-duplicates", "unknown", "--yes")

    assert (refused.code, refused.document["findings"][0]["id"]) == (ExitCode.LOSS_REFUSED, "DR-LOSS-005")
    assert (ended.code, serving(twin)) == (ExitCode.OK, ("paris",)), ended.document
    assert ended.document["data"]["bounds"]["duplicates"]["at_most"] is None


def test_one_sentence_names_both_options_with_both_figures(twin: PlayedTwin, dr_ctl: Command) -> None:
    limited(twin)
    twin.kill("london")

    refused = dr_ctl(*LOST[:3], "--yes")

    assert refused.code == ExitCode.LOSS_REFUSED
    assert "or add --accept-loss unknown --accept-duplicates unknown." in refused.document["findings"][0]["remedy"]


@pytest.mark.parametrize("words", [(*LOST, "--dry-run"), ("plan", *LOST)], ids=["dry run", "plan"])
def test_a_plan_that_is_refused_for_its_loss_is_shown_all_the_same(
    twin: PlayedTwin, dr_ctl: Command, words: tuple[str, ...]
) -> None:
    limited(twin)
    twin.kill("london")

    refused = dr_ctl(*words)
    accepted = dr_ctl(*words, "--accept-duplicates", "unknown")

    assert (refused.code, accepted.code, twin.changes()) == (ExitCode.LOSS_REFUSED, ExitCode.OK, [])
    steps = [each.document["data"]["plan"]["steps"] for each in (refused, accepted)]
    assert [step["verb"] for step in steps[0]] == [step["verb"] for step in steps[1]]
    assert [len(step["calls"]) for step in steps[0]] == [len(step["calls"]) for step in steps[1]]


@pytest.mark.parametrize("accepted", [(), ("--accept-duplicates", "5")])
def test_what_is_not_known_is_above_every_limit_but_a_persons_word(
    twin: PlayedTwin, dr_ctl: Command, accepted: tuple[str, ...]
) -> None:
    limited(twin, **({} if accepted else {"duplicates": {"messages": 1000}}))
    twin.kill("london")

    refused = dr_ctl(*LOST, *accepted, "--yes")

    assert (refused.code, serving(twin), refused.document["run"]) == (ExitCode.LOSS_REFUSED, (), None)
    [finding] = [each for each in refused.document["findings"] if each["id"] == "DR-LOSS-005"]
    assert finding["text"].startswith("how many duplicates are possible is not known")
    told = finding["remedy"].rpartition("add ")[2].rstrip(".")
    assert told == "--accept-duplicates unknown"

    ended = dr_ctl(*LOST, *shlex.split(told), "--yes")

    assert (ended.code, serving(twin)) == (ExitCode.OK, ("paris",)), ended.document


def test_validate_says_what_a_failover_would_need(twin: PlayedTwin, dr_ctl: Command) -> None:
    limited(twin, duplicates={"messages": 1000})
    twin.kill("london")

    told = dr_ctl("validate", "--for", "failover", "--to", "paris")

    assert "refused without --accept-loss unknown --accept-duplicates unknown" in json.dumps(told.document), (
        told.document
    )


def test_it_is_a_number_or_unknown(twin: PlayedTwin, dr_ctl: Command) -> None:
    ended = dr_ctl(*LOST, "--accept-duplicates", "few", "--yes")

    assert (ended.code, "--accept-duplicates few: not a number" in ended.told) == (ExitCode.USAGE, True)
    assert serving(twin) == ("london",)


@pytest.mark.parametrize("topology", [BROKERSYNC])
def test_copies_that_no_agent_has_removed_are_what_decides(twin: PlayedTwin, dr_ctl: Command) -> None:
    """Clients consumed 40 messages, whose copies lie at the other site: the agent is dead."""
    limited(twin, duplicates={"messages": 5})
    for broker in twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()
    put(twin, "london", ORDERS, 40)
    twin.wait_mirrored()
    consume_all(twin, "london")
    dry = ("failover", "--to", "paris", "--dry-run", "--accept-loss", "100000")
    with recording(load(twin.settings_path), every_s=0.1):
        until(lambda: (dr_ctl("status").document["data"]["last_look"]) is not None)
        twin.kill("london")
        until(lambda: dr_ctl(*dry).document["data"]["bounds"]["duplicates"]["at_most"] is not None)
        refused = dr_ctl(*dry)
        bound = refused.document["data"]["bounds"]["duplicates"]
        ended = dr_ctl(*dry[:3], *dry[4:], "--accept-duplicates", str(bound["at_most"]), "--yes")

    assert refused.code == ExitCode.LOSS_REFUSED
    assert 40 <= bound["likely"] <= bound["at_most"]
    [finding] = [each for each in refused.document["findings"] if each["id"] == "DR-LOSS-005"]
    assert finding["text"].startswith(f"up to {bound['at_most']} duplicate(s) are possible, likely {bound['likely']}")
    assert f"add --accept-duplicates {bound['at_most']}" in finding["remedy"]
    assert "lies at the other site although london has it no more, at most: orders.in: 40" in finding["text"]
    assert (ended.code, serving(twin)) == (ExitCode.OK, ("paris",)), ended.document


def test_where_its_host_refuses_connections_the_start_of_its_broker_is_named_first(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """The host lives, the process is gone: all that it had stored is there once it runs again."""
    twin.kill("london")

    refused = dr_ctl("failover", "--to", "paris", "--yes")

    [finding] = [each for each in refused.document["findings"] if each["id"] == "DR-LOSS-001"]
    begin = "Whoever owns that limit decides: start the broker of london again (its host answers, its ports refuse)"
    assert finding["remedy"].startswith(begin)
    twin.start("london")
    ended = dr_ctl("unfence", "london", "--yes")
    assert (ended.code, serving(twin)) == (ExitCode.OK, ("london",)), ended.document


def test_beside_a_peer_that_is_down_no_restart_of_a_link_is_advised(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.kill("london")
    until(lambda: not twin.host("paris").broker.attached)

    told = dr_ctl("validate")

    [finding] = [each for each in told.document["findings"] if each["id"] == "DR-LINK-004"]
    assert finding["remedy"] == "london does not answer; once it does, the link attaches."


@pytest.mark.parametrize("topology", [BROKERSYNC])
def test_who_would_trim_where_an_agent_cleans_is_sent_to_the_agent(twin: PlayedTwin, dr_ctl: Command) -> None:
    ended = dr_ctl("trim", "paris", "--dry-run")

    assert (ended.code, "`dr-ctl sync` removes copies of what was consumed" in ended.told) == (ExitCode.USAGE, True)
    assert serving(twin) == ("london",)
