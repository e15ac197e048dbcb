"""What no link may ever do: lose a message or double one, whatever happens to it and to brokers on the way; and what
judges rest on: a dump that tells all."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dr_ctl.core.system import system
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, MIRROR
from tests.conftest import Command
from tests.twin.matrix import GIVEN, put, take, unprocessed

IN = "orders.in"
ACTS = ("put", "put", "take", "cut", "hang", "heal", "delay", "die", "live", "wait")


def lying(twin: PlayedTwin, site: str) -> list[str]:
    """Who the messages are that lie there, in their order."""
    with twin.still():
        return [message.headers[GIVEN] for message in twin.host(site).broker.queues[IN].messages.values()]


def do(twin: PlayedTwin, act: str, site: str) -> None:
    """London serves; whatever happens to either site and to the ways."""
    served = twin.host("london").broker
    match act:
        case "put" if served.alive:
            put(twin, "london", IN, 1)
        case "take" if served.alive and twin.depth("london", IN):
            take(twin, "london", IN)
        case "cut" | "hang":
            twin.cut(site, "refuse" if act == "cut" else act)
        case "heal":
            twin.heal(site)
        case "delay":
            twin.delay(50, site)
        case "die":
            twin.kill(site)
        case "live":
            twin.start(site)
    # What an agent is told at once it hears before anything else happens.
    system().sleep(0.01 if act == "wait" else 0.001)


@pytest.mark.parametrize("topology", [MIRROR, BRIDGES, BROKERSYNC])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from(("london", "paris"))), max_size=40))
@example([("cut", "london"), ("put", ""), ("take", ""), ("die", "london")])
@example([("cut", "london"), ("put", ""), ("take", "")])
@example([*[("put", "")] * 9, ("wait", ""), *[("cut", "london"), ("heal", "london"), ("wait", "")] * 3])
def test_whatever_happens_on_the_way_both_sites_end_with_the_same(topology: str, acts: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder, PlayedTwin.up(Path(folder) / "twin", topology=topology) as twin:
        sent, left = set[str](), set[str]()
        for act, site in acts:
            do(twin, act, site)
            sent |= {*lying(twin, "london")}
        left = sent & unprocessed(twin)
        twin.heal()
        for site in twin.sites:
            twin.start(site)
        twin.open_clients("london")
        with twin.still():
            for broker in twin.brokers(BrokerSyncBroker):
                assert broker.agent is not None
                broker.agent.start()
        twin.wait_mirrored(within_s=60)

        here, there = (lying(twin, site) for site in twin.sites)
        assert len(here) == len({*here}) == len(left)
        assert len(there) == len({*there})
        assert {*here} == {*there} & unprocessed(twin) == left
        # Copies of what was processed stay where bridges join the sites; where an agent deletes them, it may have died
        # with what it had heard.
        assert here == there or topology == BRIDGES or (topology == BROKERSYNC and ("die", "london") in acts)


def test_the_dump_tells_every_change_and_is_the_same_where_it_was_undone(twin: PlayedTwin, dr_ctl: Command) -> None:
    start = twin.dump()

    twin.pause("london", IN)
    twin.close_clients("london")
    changed = twin.dump()
    twin.open_clients("london")
    with twin.still():
        twin.host("london").broker.queues[IN].paused = False

    assert changed != start == twin.dump()
    dr_ctl("link", "restart", "london", "--yes")
    asked = [(each.site, each.operation.partition("(")[0], each.status) for each in twin.changes()]
    assert [each for each in asked if "Connection" in each[1]] == [
        ("london", f"{verb}BrokerConnection", 200) for verb in ("stop", "start")
    ]
