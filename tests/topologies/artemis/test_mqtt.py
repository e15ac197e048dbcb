"""What MQTT keeps at a broker and no link brings over: told where something lies there, and only then."""

from __future__ import annotations

import pytest

from dr_ctl.topologies.artemis.checks import of_both
from dr_ctl.topologies.common.view import Queue
from tests.topologies.mirror.views import broker, queue

TOPIC = "$sys.mqtt.retain.plant.1.state"
SESSIONS = queue("$sys.mqtt.sessions", 3, internal=True)


@pytest.mark.parametrize(
    ("queues", "stays"),
    [
        ([], ()),
        ([queue(TOPIC, 0), queue("$sys.mqtt.sessions", 0, internal=True)], ()),
        ([queue("meter-7.plant.*", 5)], ()),  # the queue of a session moves
        ([queue(TOPIC, 1)], ("1 retained message(s) of MQTT (plant.1.state)",)),
        ([SESSIONS], ("the session state of 3 client(s) of MQTT",)),
        (
            [queue(TOPIC, 1), queue("$sys.mqtt.retain.a", 1), SESSIONS],
            ("2 retained message(s) of MQTT (a; plant.1.state)", "the session state of 3 client(s) of MQTT"),
        ),
    ],
)
def test_retained_messages_and_kept_sessions_stay(queues: list[Queue], stays: tuple[str, ...]) -> None:
    assert tuple(broker("london", *queues).stays) == stays


def test_what_stays_is_a_warning_at_the_serving_site_alone() -> None:
    keeps, keeps_not = broker("london", queue(TOPIC, 1)), broker("paris")
    [finding] = of_both(keeps, keeps_not)
    assert finding.id == "DR-MQTT-001"
    assert finding.text == (
        "london/orders-1: 1 retained message(s) of MQTT (plant.1.state) stay there and do not come to paris"
    )
    assert list(of_both(keeps_not, keeps)) == []
