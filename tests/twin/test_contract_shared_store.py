"""Two Classic brokers that share a store, real or simulated: who has it, how it changes hands, what goes with it."""

from dr_ctl.stomp_io.answers import Closed, Connected
from dr_ctl_lab.twin.kinds import SHARED_STORE
from tests.twin.classic_subject import ORDERS, TAKES_S, StoreSubject
from tests.twin.subject import SITES, until

TOPOLOGY = SHARED_STORE


def filled(pair: StoreSubject, count: int = 3) -> list[str]:
    """So many messages, and one that is not durable; the ids of all but that."""
    with pair.client("london") as client:
        for number in range(count):
            client.send(ORDERS, n=str(number))
        durable = pair.ids("london")
        client.send(ORDERS, durable=False)
    return durable


def test_who_waits_runs_and_has_no_port_and_no_console(pair: StoreSubject) -> None:
    assert (pair.locked(), [pair.runs(site) for site in SITES]) == (True, [True, True])
    assert (pair.knocks("london"), pair.knocks("paris")) == (Connected, Closed)
    assert (pair.answers("london"), pair.answers("paris")) == (True, False)
    assert pair.read("london", pair.server("london"), "Slave") == {"Slave": False}


def test_closed_connectors_keep_the_lock(pair: StoreSubject) -> None:
    for _ in range(2):
        pair.done("london", pair.connector("london", "stomp"), "stop()")

    assert (pair.knocks("london"), pair.knocks("paris")) == (Closed, Closed)
    assert (pair.locked(), pair.answers("london"), pair.answers("paris")) == (True, True, False)


def test_what_is_stopped_hands_over_what_is_durable_and_no_pause(pair: StoreSubject) -> None:
    durable = filled(pair)
    pair.done("london", pair.queue("london", ORDERS), "pause()")
    pair.done("london", pair.connector("london", "stomp"), "stop()")

    pair.stop("london")

    pair.taken("paris")
    told = pair.read("paris", pair.queue("paris", ORDERS), "Paused", "QueueSize", "EnqueueCount", "DequeueCount")
    assert (pair.locked(), pair.answers("london")) == (True, False)
    assert pair.ids("paris") == durable
    assert told == {"Paused": False, "QueueSize": 3, "EnqueueCount": 0, "DequeueCount": 0}
    until(lambda: not pair.runs("london"), within_s=TAKES_S)


def test_what_is_killed_leaves_it_to_who_waits_and_waits_itself_when_it_is_back(pair: StoreSubject) -> None:
    durable = filled(pair)

    pair.stage.kill("london")

    assert not pair.runs("london")
    pair.taken("paris")
    pair.stage.start("london")
    assert pair.runs("london")
    assert (pair.ids("paris"), pair.knocks("london"), pair.answers("london")) == (durable, Closed, False)
    with pair.client("paris") as client:
        client.subscribe(ORDERS)
        client.ack(client.message())
        until(lambda: pair.depth("paris", ORDERS) == 2)


def test_a_store_that_nobody_has_is_locked_by_nobody(pair: StoreSubject) -> None:
    durable = filled(pair)
    pair.stage.kill("paris")
    pair.stage.kill("london")
    assert not pair.locked()

    pair.stage.start("paris")

    pair.taken("paris")
    assert (pair.locked(), pair.ids("paris")) == (True, durable)
