"""The names of dr-ctl's own documents and queues on a broker, told apart from all else that lies there. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

OWN: Final = "dr-ctl."
ANY_ADDRESS: Final = f"{OWN}any"  # an address that nobody has: what roles may do there, they may do by default
_DIGITS: Final = 15  # of a document's number: what has more was not written by dr-ctl
OUTFLOW_PREFIX: Final = "$ACTIVEMQ_ARTEMIS_MIRROR_"
CLUSTER_PREFIX: Final = "$.artemis.internal.sf."
# What a name has that only a document may have; a queue of messages that dr-ctl keeps aside has none of them.
DOCUMENT: Final = re.compile(r"dr-ctl\.(lock|debt|receipt)\.")
QUARANTINE_PREFIX: Final = f"{OWN}quarantine."
# What brokers keep for themselves, and what is dr-ctl's own: no client's.
OTHERS: Final = ("activemq.management", "activemq.notifications", "$.artemis.", "$sys.", OUTFLOW_PREFIX, OWN)


def quarantine_queue(site: str, queue: str) -> str:
    """The name of dr-ctl's own queue for what nothing explains: it contains the site that holds it."""
    return f"{QUARANTINE_PREFIX}{site}.{queue}"


def numbered(documents: Mapping[str, str], kind: str) -> list[tuple[int, str]]:
    """Documents of one kind, by number. The site in the name is what other settings may call this one."""
    name = re.compile(rf"dr-ctl\.{re.escape(kind)}\.[^.]+\.(\d{{1,{_DIGITS}}})")
    found = [(name.fullmatch(each), text) for each, text in documents.items()]
    return sorted((int(match[1]), text) for match, text in found if match is not None)
