"""A console whose policy denies what a run needs, on a twin of Classic brokers: the product's look tells it."""

from contextlib import closing

from dr_ctl.jolokia.client import Account, Reader, Wire
from dr_ctl.topologies.classic import look
from dr_ctl.topologies.classic.operations import PAUSES, REMOVES, REMOVES_QUEUES, RESUMES, STOPS
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.policy import HARDENED
from dr_ctl_lab.twin.kinds import BROKERSYNC
from tests.twin.classic_subject import ORDERS, ClassicSubject

TOPOLOGY = BROKERSYNC


def test_a_policy_refuses_what_it_denies_before_it_looks_for_a_bean(twin: PlayedTwin) -> None:
    pair, host = ClassicSubject(twin), twin.host("london")
    assert isinstance(host.broker, ClassicBroker)
    with closing(Wire(Account(f"{host.jolokia}/", *host.admin, "http://127.0.0.1"))) as wire:
        whole = look.ask(Reader(wire), look.find_broker(Reader(wire)))
        host.broker.policy = HARDENED
        denied = look.ask(Reader(wire), "london").denied

    assert {(each.name, each.started) for each in whole.connectors} == {
        (door, True) for door in ("stomp", "openwire", "sync")
    }
    assert [(each.name, each.to) for each in whole.networks] == [("to-paris", "paris")]
    assert (whole.denied, denied) == (frozenset(), {PAUSES, RESUMES, REMOVES, REMOVES_QUEUES, STOPS})
    paused = pair.execute("london", pair.queue("london", ORDERS), "pause()")
    assert (paused["status"], paused["error"].partition(" for MBean")[0]) == (
        403,
        "java.lang.Exception : Operation pause() forbidden",
    )
    secret = pair.ask("london", type="read", mbean=pair.network("london"))
    assert (secret["status"], "Password is forbidden" in secret["error"]) == (403, True)
    assert pair.read("london", pair.network("london"), "Name") == {"Name": "to-paris"}
