"""The findings of the topologies of Artemis brokers."""

from typing import Final

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Severity

MQTT_STAYS: Final = FindingKind(
    "DR-MQTT-001",
    Severity.WARNING,
    "Messages that MQTT retains, and sessions that it keeps, stay at their site: no link brings them over. What waits "
    "in the queue of a session moves.",
    "Publish with retain again once the target serves; let clients subscribe again there.",
    "Until then new subscribers get what the target retained itself, however old.",
    check="MQTT keeps nothing that would stay",
)
