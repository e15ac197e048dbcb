"""The shortest stories of what the adversary of `adversary.py` found."""

import json
import os
from pathlib import Path

import pytest

from dr_ctl.agents.monitor import recording
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.outcome import Refused
from dr_ctl.settings.loader import load
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.rehearsal import ANY_FIGURE
from dr_ctl_lab.twin.kinds import BROKERSYNC, CONTINUITY, FANOUT, MIRROR
from tests.conftest import Command
from tests.topologies.fanout import stories as fanned_out
from tests.twin.conftest import prompt
from tests.twin.matrix import ACCEPTED, dies, done, put, serving, without_agents
from tests.twin.subject import until

ORDERS = "orders.in"


def consume_all(twin: PlayedTwin, site: str) -> None:
    """Clients of a site consume what it holds, and the other site is not told by ids."""
    with twin.still():
        broker = twin.host(site).broker
        for message in list(broker.queues[ORDERS].live()):
            broker.remove(broker.queues[ORDERS], message)


@pytest.mark.parametrize("topology", [MIRROR, CONTINUITY])
def test_a_site_with_copies_whose_acknowledgements_were_lost_is_not_unfenced(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", ORDERS, 10)
    twin.wait_mirrored()
    done(dr_ctl("fence", "london", "--yes"))
    with twin.still():
        messages = twin.host("london").broker.queues[ORDERS].messages
        for number in list(messages)[:3]:
            del messages[number]

    ended = dr_ctl("unfence", "paris", "--yes")

    assert (ended.code, ended.ids) == (10, ["DR-UNFENCE-003"]), ended.document
    assert "paris holds messages that london has not, and none is on its way: orders.in: 3" in ended.told
    assert all(f"`dr-ctl {words}`" in ended.told for words in ("unfence london", "failover --to paris"))
    assert "--accept-duplicates" in dr_ctl("failover", "--to", "paris", "--yes").told
    done(dr_ctl("unfence", "london", "--yes"))
    assert serving(twin) == ("london",)


@pytest.mark.parametrize("topology", [MIRROR, BROKERSYNC])
def test_a_failover_that_is_gone_on_with_says_what_it_said_before_clients_worked(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """Its process dies once Paris is open, and somebody fences Paris; London is back before the run is gone on with."""
    put(twin, "london", ORDERS, 3)
    twin.wait_mirrored()
    failover = ("failover", "--to", "paris")
    with recording(load(twin.settings_path), every_s=0.1):
        twin.cut("london")
        until(lambda: not twin.host("london").broker.attached)
        consume_all(twin, "london")
        twin.kill("london")
        until(lambda: dr_ctl(*failover, "--dry-run").document["data"]["bounds"]["duplicates"]["at_most"] != 0)
        figures = dr_ctl(*failover, *ACCEPTED, "--dry-run").code == ExitCode.LOSS_REFUSED
        dies(dr_ctl, *failover, *(ANY_FIGURE if figures else ACCEPTED))
    [journal] = Path(os.environ["DR_CTL_STATE_DIR"]).glob("**/runs/*/journal.jsonl")
    lines = [json.loads(line)["evidence"] for line in journal.read_text(encoding="utf-8").splitlines()]
    [said] = [evidence["bounds"] for evidence in lines if "bounds" in evidence]
    consume_all(twin, "paris")
    done(dr_ctl("fence", "paris", "--yes"))
    twin.heal()
    twin.start("london")

    ended = dr_ctl("resume", "--yes")

    assert (serving(twin), ended.document["data"]["bounds"]) == (("paris",), said), ended.document


@pytest.mark.parametrize(("topology", "again"), [(BROKERSYNC, ()), (FANOUT, ()), (MIRROR, ("london",))])
def test_a_run_is_not_undone_once_its_target_may_have_served_and_was_started_anew(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, topology: str, again: tuple[str, ...]
) -> None:
    """Clients consumed there, which no link of these brokers tells the other site; a mirror tells it."""
    without_agents(twin)
    put(twin, "london", ORDERS, 5)
    twin.wait_mirrored()
    dies(dr_ctl, "swapover", "--to", "paris")
    assert serving(twin) == ("paris",)
    if topology == FANOUT:
        fanned_out.consume(twin, "paris", *fanned_out.Story(twin, dr_ctl).lying("paris")[:3], noted=False)
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


@pytest.mark.parametrize("topology", [MIRROR, BROKERSYNC, FANOUT])
def test_an_open_failover_whose_lost_site_serves_is_ended_by_the_way_that_status_names(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No failover goes on beside a site that serves, so status does not recommend that, and says who is served."""
    prompt(monkeypatch)
    put(twin, "london", ORDERS, 3)
    twin.wait_mirrored()
    twin.kill("london")
    dies(dr_ctl, "failover", "--to", "paris", *ACCEPTED, first=True)
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
        again = ("failover", "--to", "london", "--yes")
        ended = dr_ctl(*again, *ACCEPTED)
        done(dr_ctl(*again, *ANY_FIGURE) if ended.code == ExitCode.LOSS_REFUSED else ended)
        done(dr_ctl("reinstate", "paris", "--yes"))
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
