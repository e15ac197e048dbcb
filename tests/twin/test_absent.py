"""A line that a topology's page has for broker.xml or activemq.xml and a broker lacks is named by a finding.

The mirror's lines are taken out of real brokers (tests/topologies/mirror/test_real.py)."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.divert import Divert
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, SHARED_STORE
from tests.conftest import Command
from tests.twin.subject import until

Change = Callable[[Any], object]  # of the broker at Paris
IDS: Final = "notification.idempotent-consumer"


def sets(name: str, value: object, listener: str = "") -> Change:
    return lambda broker: setattr(broker.acceptors[listener] if listener else broker, name, value)


def renamed(listener: str) -> Change:
    """Nobody finds a listener by the name that the settings have for it."""
    return sets("name", "other", listener)


def bridge(**config: Any) -> Change:
    def change(broker: Any) -> None:
        of_orders = broker.bridges["bridge.mirror.london.orders.in"]
        of_orders.config = {**of_orders.config, **{key.replace("_", "-"): value for key, value in config.items()}}

    return change


def divert(name: str, key: str) -> Change:
    def change(broker: Any) -> None:
        config = broker.diverts[name].config
        broker.diverts[name] = Divert({word: value for word, value in config.items() if word != key})

    return change


def transformer(broker: Any) -> None:
    bridge = broker.bridges["bridge.mirror.london.orders.in"]
    bridge.config = {key: value for key, value in bridge.config.items() if key != "transformer-configuration"}


# Three kinds of lines are not here. No management shows the attributes of <mirror/> (`address-filter`), the properties
# of the plugin, a bridge's pending-ack-timeout and initial-connect-attempts, and composite queues with their selectors:
# counts tell what follows. advisoryForConsumed, maxBrowsePageSize and the rights of the link are told by what they keep
# from working, where tests of that stand, and jolokia-access.xml in test_brokersync.py.
ABSENT: Final[dict[tuple[str, str], tuple[Change, str, str]]] = {
    (BRIDGES, "autoStart"): (sets("opens_at_boot", True, "clients"), "DR-DOOR-007", "autoStart=false"),
    (BRIDGES, "reconnect-attempts"): (bridge(reconnect_attempts=3), "DR-BRIDGE-021", "<reconnect-attempts>-1<"),
    (BRIDGES, "detection"): (bridge(use_duplicate_detection=False), "DR-BRIDGE-021", "<use-duplicate-detection>true<"),
    (BRIDGES, "max-retry"): (bridge(retry_interval=30_000, max_retry_interval=60_000), "DR-BRIDGE-021", "max-retry"),
    (BRIDGES, "persist-id-cache"): (sets("persists_ids", False), "DR-BRIDGE-021", "<persist-id-cache>true<"),
    (BRIDGES, "acceptor clients"): (renamed("clients"), "DR-DOOR-001", "`clients:`"),
    (BRIDGES, "acceptor bridge"): (renamed("bridge"), "DR-DOOR-001", "`bridge:`"),
    (BRIDGES, "bridge"): (lambda of: of.bridges.pop("bridge.mirror.london.orders.in"), "DR-BRIDGE-006", "a bridge"),
    (BRIDGES, "transformer"): (transformer, "DR-BRIDGE-007", "AddHeadersTransformer"),
    (BRIDGES, "divert"): (lambda of: of.diverts.pop("divert.orders.in"), "DR-BRIDGE-006", "a divert"),
    (BRIDGES, "filter"): (divert("divert.orders.in", "filter-string"), "DR-BRIDGE-007", "ARTEMIS_MESSAGE_ORIGIN"),
    (BRIDGES, "divert of ids"): (lambda of: of.diverts.pop(f"divert.{IDS}"), "DR-BRIDGE-003", "exclusive divert"),
    (BRIDGES, "exclusive"): (divert(f"divert.{IDS}", "exclusive"), "DR-BRIDGE-003", "exclusive divert"),
    (BRIDGES, "buffer"): (lambda of: of.queues.pop("mirror.london.orders.in"), "DR-BRIDGE-006", "mirror.orders.in"),
    (BRIDGES, "queue of ids"): (lambda of: of.queues.pop(IDS), "DR-BRIDGE-010", "processor"),
    (BRIDGES, "queue"): (lambda of: of.queues.pop("orders.in"), "DR-BRIDGE-011", "queue orders.in"),
    (CONTINUITY, "persist-id-cache"): (sets("persists_ids", False), "DR-CONT-003", "<persist-id-cache>true<"),
    (CONTINUITY, "acceptor serving"): (renamed("clients"), "DR-DOOR-001", "`clients:`"),
    (CONTINUITY, "acceptor continuity-external"): (renamed("mirror"), "DR-DOOR-001", "`mirror:`"),
    (BROKERSYNC, "connector stomp"): (renamed("stomp"), "DR-DOOR-001", "`clients:`"),
    (BROKERSYNC, "connector bridge"): (lambda of: of.acceptors.pop("openwire"), "DR-DOOR-003", "`bridge:`"),
    (BROKERSYNC, "connector sync"): (renamed("sync"), "DR-DOOR-001", "`sync:`"),
    (BROKERSYNC, "networkConnector"): (lambda of: of.network.stop(), "DR-LINK-004", "link restart paris"),
    (FANOUT, "connector stomp"): (renamed("stomp"), "DR-DOOR-001", "`clients:`"),
    (FANOUT, "connector producers"): (renamed("producers"), "DR-FAN-001", "`producers:`"),
    (FANOUT, "connector dr-ctl"): (renamed("sync"), "DR-DOOR-001", "`sync:`"),
    (SHARED_STORE, "connector stomp"): (renamed("stomp"), "DR-DOOR-001", "`clients:`"),
}


@pytest.mark.parametrize(("topology", "line"), ABSENT, ids=" ".join)
def test_the_finding_names_it(twin: PlayedTwin, dr_ctl: Command, topology: str, line: str) -> None:
    change, ident, word = ABSENT[topology, line]
    site = "london" if topology == SHARED_STORE else "paris"  # where one waits for the store it shows nothing
    assert dr_ctl("validate", "--to", "paris").rows(ident) == []

    with twin.locked():
        change(twin.host(site).broker)

    until(lambda: dr_ctl("validate", "--to", "paris").rows(ident))
    rows = dr_ctl("validate", "--to", "paris").rows(ident)
    assert [word in row["remedy"] for row in rows if row["text"].startswith(f"{site}/")] == [True]
