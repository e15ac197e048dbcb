"""What a broker keeps for its clients of MQTT, and no link brings to the other site; the check that says so. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, some
from dr_ctl.topologies.common.names import MQTT_RETAINED
from dr_ctl.topologies.common.view import Broker

SESSIONS: Final = "$sys.mqtt.sessions"


def stays(view: Broker) -> Sequence[str]:
    """What of it lies there, as sentences' parts."""
    retained = {queue.name.removeprefix(MQTT_RETAINED): queue.depth for queue in view.queues if queue.retained}
    topics = sorted(name for name, depth in retained.items() if depth > 0)
    sessions = view.named[SESSIONS].depth if SESSIONS in view.named else 0
    found = []
    if topics:
        found.append(f"{sum(map(retained.__getitem__, topics))} retained message(s) of MQTT ({some(topics)})")
    if sessions > 0:
        found.append(f"the session state of {sessions} client(s) of MQTT")
    return found


def of_both(here: Broker, there: Broker) -> Iterator[Finding]:
    """Tell what stays at the serving site."""
    if stays := here.stays:
        again = f"Publish with retain again once {there.site} serves: until then it gives what it retained itself."
        remedies = {
            "retained message(s) of MQTT": again,
            "the session state of": f"Let clients subscribe again at {there.site}, as after a session that was lost.",
        }
        yield found(
            "DR-MQTT-001",
            site=here.site,
            pair=here.pair,
            stays=" and ".join(stays),
            other_site=there.site,
            advice=" ".join(remedy for kind, remedy in remedies.items() if any(kind in each for each in stays)),
        )
