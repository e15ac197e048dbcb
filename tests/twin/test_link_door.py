"""Who comes in by a door that the settings declare free of clients is counted all the same: in `validate`, in the
fence's proof, and at the gate. Brokers of the same site are no clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.artemis.group import Guest
from dr_ctl_lab.twin.kinds import BRIDGES, CONTINUITY, MIRROR
from dr_ctl_lab.twin.parts import Acceptor
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.twin.matrix import at_rest, done, quick, serving

BY_LINK, BY_OTHER = "DR-DOOR-011", "DR-DOOR-005"
SENDER = Guest("mirror", "AMQP", "app", "sender-1")


def artemis(twin: PlayedTwin, site: str) -> ArtemisBroker:
    broker = twin.host(site).broker
    assert isinstance(broker, ArtemisBroker)
    return broker


def found(ended: Ended, ident: str) -> list[dict[str, Any]]:
    return [each for each in ended.document["findings"] if each["id"] == ident]


@pytest.mark.parametrize(
    ("topology", "guest"),
    [
        (MIRROR, SENDER),
        (BRIDGES, Guest("bridge", "CORE", "app")),
        (CONTINUITY, Guest("mirror", "CORE", "app")),
        (CONTINUITY, Guest("mirror", "AMQP", "admin")),
    ],
)
@pytest.mark.parametrize("site", ["london", "paris"])
def test_a_client_on_the_links_door_is_told_and_refuses_a_move(
    twin: PlayedTwin, dr_ctl: Command, guest: Guest, site: str
) -> None:
    artemis(twin, site).guests.append(guest)
    before = at_rest(twin)

    looked, refused = dr_ctl("validate", "--for", "swapover"), dr_ctl("swapover", "--to", "paris", "--yes")

    assert (looked.code, refused.code) == (10, 10), refused.document
    for ended in (looked, refused):
        [finding] = found(ended, BY_LINK)
        assert finding["severity"] == "error"
        assert f"(user {guest.user}" in finding["text"]
        assert f"on acceptor {guest.door}" in finding["text"]
    assert at_rest(twin) == before
    artemis(twin, site).guests.clear()
    done(dr_ctl("swapover", "--to", "paris", "--yes"))


def test_a_fence_alone_is_refused_beside_a_client_on_the_links_door(twin: PlayedTwin, dr_ctl: Command) -> None:
    artemis(twin, "london").guests.append(SENDER)

    refused = dr_ctl("fence", "london", "--yes")

    assert refused.code == 10, refused.document
    assert len(found(refused, BY_LINK)) == 1
    assert serving(twin) == ("london",)


def as_doors_close(twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    broker = artemis(twin, "london")
    close = broker.close_door

    def closed(*doors: Acceptor) -> None:
        close(*doors)
        then()

    monkeypatch.setattr(broker, "close_door", closed)


def test_a_client_that_comes_by_the_links_door_as_the_others_are_cut_fails_the_proof_of_the_fence(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = at_rest(twin)
    as_doors_close(twin, monkeypatch, lambda: artemis(twin, "london").guests.append(SENDER))

    with quick(monkeypatch):
        ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert ended.code == 20, ended.document
    assert "clients go on behind the fence" in ended.document["summary"]
    assert "sender-1" in ended.document["summary"]
    assert (at_rest(twin), serving(twin)) == (before, ("london",))


def test_the_gate_stays_shut_beside_a_client_on_the_links_door(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes once the fence is proven: a drain is next."""
    done(dr_ctl("fence", "london", "--yes"))
    artemis(twin, "paris").guests.append(SENDER)

    with quick(monkeypatch):
        looked = dr_ctl("verify", "--to", "paris")

    assert looked.code == 10, looked.document
    assert "a client on the door of the link" in looked.document["summary"]


def join_cluster(twin: PlayedTwin, site: str) -> ArtemisBroker:
    """Give a broker an acceptor for brokers of its site, and the connections of one that is there."""
    broker = artemis(twin, site)
    broker.acceptors["cluster"] = Acceptor("cluster", "CORE", opens_at_boot=True, port=61618, started=True)
    broker.group.door, broker.group.cluster["another"] = "cluster", "10.9.8.7:61618"
    options = {"name": "notif.1", "address": "activemq.notifications", "routing-type": "multicast", "internal": True}
    broker.create_queue(options, here_only=True)
    broker.guests += [
        Guest("cluster", "CORE", remote="10.9.8.7:40001"),
        Guest("cluster", "CORE", "cluster-user", consumes="notif.1", remote="10.9.8.7:40002"),
    ]
    return broker


def test_brokers_of_one_site_in_a_cluster_are_moved_and_a_client_among_them_is_told(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    for site in twin.sites:
        join_cluster(twin, site)

    looked = dr_ctl("validate")
    assert looked.code == 0, looked.document
    assert found(looked, BY_OTHER) == found(looked, "DR-DOOR-006") == []
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    assert serving(twin) == ("paris",)

    artemis(twin, "paris").guests.append(Guest("cluster", "CORE", "app", remote="10.1.1.1:1"))
    refused = dr_ctl("swapover", "--to", "london", "--yes")

    assert refused.code == 10, refused.document
    [finding] = found(refused, BY_OTHER)
    assert "user app" in finding["text"]
    assert "cluster-user" not in finding["text"]
    assert "under `clients:`" not in finding["remedy"]


def test_whoever_names_neither_user_nor_client_may_be_a_broker_and_no_remedy_makes_its_door_the_clients(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """As where a connector names an address that something between translates: its port is none of the acceptors'."""
    broker = join_cluster(twin, "london")
    broker.group.door = ""

    refused = dr_ctl("swapover", "--to", "paris", "--yes")

    [finding] = found(refused, BY_OTHER)
    assert "Find out who that is" in finding["remedy"]
    assert "under `clients:`" not in finding["remedy"]
