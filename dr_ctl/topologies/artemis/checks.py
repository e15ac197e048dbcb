"""Checks of a move that all topologies of Artemis brokers make. Pure."""

from collections.abc import Iterator

from dr_ctl.core.model import Finding
from dr_ctl.topologies.artemis.findings import MQTT_STAYS
from dr_ctl.topologies.common.view import Broker


def of_both(here: Broker, there: Broker) -> Iterator[Finding]:
    """Tell what stays at the serving site."""
    if found := here.stays:
        yield MQTT_STAYS(
            f"{here.site}/{here.pair}: {' and '.join(found)} stay there and do not come to {there.site}",
            f"Publish with retain again once {there.site} serves: until then it gives what it retained itself; let "
            "clients subscribe again there, as after a session that was lost.",
        )
