"""Lists a queue for a run: deep ones over STOMP at the agent's door, twenty times as fast as by the console."""

from typing import Final

from dr_ctl.jolokia.client import Read
from dr_ctl.topologies.brokersync.access import Access
from dr_ctl.topologies.brokersync.sync.accounts import SHOWN
from dr_ctl.topologies.brokersync.view import AGENT, BrokerView
from dr_ctl.topologies.classic import browsing, ids
from dr_ctl.topologies.classic.ids import Listed
from dr_ctl.topologies.common.view import Queue

DEEP: Final = 1000
"""A browse counts as a dispatch of each message that it shows, as for a client: small queues are left to the console,
which leaves no trace."""
BY_STOMP_S: Final = 0.0002  # a message; 40 000 of 500 bytes took 1.7 s
BY_CONSOLE_S: Final = 0.001  # 40 000 took 20 s
BEFORE: Final = "original-destination"


def listed(access: Access, view: BrokerView, queue: Queue | None, *, tries: int = 1) -> Listed:
    """List a queue of that broker whole. What the peer ships may come to a closed site meanwhile. Raises
    `BrokerError`."""
    grows = not view.open and not view.prepared
    if queue is None or queue.depth <= DEEP or (door := access.agents_door()) is None:
        return ids.listed(access, queue, tries=tries, grows=grows)
    before = _depth(access, queue)
    # Noted first: if this process dies meanwhile, the broker's counters prove too little, not too much.
    access.note(view.start, SHOWN, queue.name, before)
    found: dict[str, str | None] = {}
    for frame in browsing.browsed(door, queue.name, client=AGENT):
        was = frame.headers.get(BEFORE)
        found[frame.headers["message-id"]] = was.removeprefix("/queue/") if was is not None else None
    access.note(view.start, SHOWN, queue.name, len(found) - before)
    return ids.whole(access.site, queue.name, found, before, _depth(access, queue), grows=grows)


def takes_s(view: BrokerView, depth: int) -> float:
    """How long a listing of so many messages may take."""
    return depth * (BY_STOMP_S if depth > DEEP and view.own.agent is not None else BY_CONSOLE_S)


def _depth(access: Access, queue: Queue) -> int:
    answer = access.reader().look([Read(queue.bean, ("QueueSize",))])[0]
    return ids.depth_of(answer.value())
