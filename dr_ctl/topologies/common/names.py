"""The names of dr-ctl's own documents and queues on a broker, told apart from all else that lies there. Pure."""

import re
from collections.abc import Mapping
from typing import Final

OWN: Final = "dr-ctl."
ANY_ADDRESS: Final = f"{OWN}any"  # nobody has this address: rights of a role here are its rights by default
_DIGITS: Final = 15  # digits of a document's number: dr-ctl never wrote a longer one
OUTFLOW_PREFIX: Final = "$ACTIVEMQ_ARTEMIS_MIRROR_"
CLUSTER_PREFIX: Final = "$.artemis.internal.sf."
HEARD_BY: Final = "notif."
"""Of queues by which another broker of a cluster hears of this one's."""
# Only documents have these words in their names; queues of messages that dr-ctl keeps aside do not.
DOCUMENT: Final = re.compile(r"dr-ctl\.(lock|debt|receipt)\.")
QUARANTINE_PREFIX: Final = f"{OWN}quarantine."
REHEARSAL: Final = "rehearsal.dr-ctl."
"""Of a rehearsal's queue, which the peer has to get: the filters of mirrors leave out what begins with `dr-ctl.`"""
OURS: Final = (OWN, REHEARSAL)
MQTT_RETAINED: Final = "$sys.mqtt.retain."
"""Of queues that hold what MQTT retains for new subscribers: the broker calls them none of its own, nobody consumes."""
# Names that brokers keep for themselves. Which queues are its own a broker says itself, but for versions before 2.34.
BROKERS: Final = (
    "activemq.management", "activemq.notifications", HEARD_BY, "$.artemis.", "$sys.mqtt.sessions", OUTFLOW_PREFIX,
)  # fmt: skip


def quarantine_queue(site: str, queue: str) -> str:
    """The name of dr-ctl's queue for messages without an explanation, with the site that holds the queue."""
    return f"{QUARANTINE_PREFIX}{site}.{queue}"


def numbered(documents: Mapping[str, str], kind: str) -> list[tuple[int, str]]:
    """Documents of one kind, by number. The site in the name is what other settings may call this one."""
    name = re.compile(rf"dr-ctl\.{re.escape(kind)}\.[^.]+\.(\d{{1,{_DIGITS}}})")
    matches = [(name.fullmatch(each), text) for each, text in documents.items()]
    return sorted((int(match[1]), text) for match, text in matches if match is not None)
