"""A look at a broker whose producers write to its peer too."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.jolokia.client import Answer, Read, Reader
from dr_ctl.jolokia.errors import NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.classic.access import Papers
from dr_ctl.topologies.classic.browsing import OWN_CLIENT
from dr_ctl.topologies.classic.look import ask
from dr_ctl.topologies.common.view import Config, Queue
from dr_ctl.topologies.fanout.counting import EMPTY, Counters
from dr_ctl.topologies.fanout.view import BrokerView, FanoutConfig

COUNTERS: Final = ("QueueSize", "EnqueueCount", "DequeueCount", "ExpiredCount", "DispatchCount", "InFlightCount")


def look(
    reader: Reader,
    document_files: Papers,
    *,
    pair: str,
    site: str,
    config: Config,
    own: FanoutConfig,
    broker: str,
    timeout_s: float,
) -> BrokerView:
    """Raises `BrokerError`."""
    answer = ask(reader, broker, timeout_s=timeout_s)
    return BrokerView(
        pair=pair,
        site=site,
        config=config,
        own=own,
        broker=answer.broker.text("BrokerName"),
        version=answer.broker.text("BrokerVersion"),
        node=answer.broker.text("BrokerName"),
        start=answer.broker.text("BrokerId"),
        now_ms=document_files.now_ms,
        acceptors=answer.connectors,
        queues=answer.queues,
        connections=tuple(each for each, network in answer.connections if not network),
        # A browse of dr-ctl's own counts as a consumer and takes nothing.
        consumers=tuple(
            each for each, network in answer.consumers if not network and not each.client.startswith(OWN_CLIENT)
        ),
        prepared=answer.prepared,
        documents=document_files.texts(),
        disk_used=answer.share,
        obstacles=answer.obstacles,
        networks=answer.networks,
        denied=answer.denied,
        bridges=tuple(each for each, network in answer.connections if network),
    )


def counters(reader: Reader, queues: Sequence[Queue | None]) -> list[Counters]:
    """The counters of these queues in one small look; of one that is not there none ever counted. Raises
    `BrokerError`."""
    there = [queue for queue in queues if queue is not None]
    answers = iter(reader.look([Read(queue.bean, COUNTERS) for queue in there]) if there else ())
    return [EMPTY if queue is None else counters_of(queue, next(answers)) for queue in queues]


def counters_of(queue: Queue, answer: Answer) -> Counters:
    if isinstance(answer.error, NoSuchBean):
        return EMPTY
    fields = Fields(queue.bean, answer.value())
    depth, added, removed, expired, dispatched, in_hand = map(fields.number, COUNTERS)
    # A client that leaves while it takes is counted twice at times: in hand is then below zero for a while.
    return Counters(depth, added, removed, expired, dispatched - max(0, in_hand))
