"""Tells which messages in a returned site's buffers its consumers have done without an announcement that is left."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.client import READ_S, Ask, Listing, Reader
from dr_ctl.topologies.bridges.messages import PAGE, pages
from dr_ctl.topologies.bridges.view import BrokerView, Flow
from dr_ctl.topologies.common.idstore import NotRead, Store
from dr_ctl.topologies.common.view import Queue

READ_UP_TO: Final = 20_000


def unannounced(
    reader: Reader, view: BrokerView, store: Store | None, header: str
) -> Mapping[str, Sequence[str]] | None:
    """By unit; None where no store is named, or what lies there cannot be listed whole."""
    held = [flow for flow in view.flows if flow.to_ship]
    buffers = [flow.buffer for flow in (*held, *([view.ids] if view.ids is not None else []))]
    if not held:
        return {}
    if store is None or any(each is not None and each.depth > READ_UP_TO for each in buffers):
        return None
    try:
        announced = _announced(reader, view.ids.buffer) if view.ids is not None and view.ids.buffer is not None else ""
        done = {flow.unit: _done(reader, view, flow, store, header) for flow in held}
    except (NotRead, BrokerError):
        return None
    if announced is None or None in done.values():
        return None
    return {unit: sorted(each for each in ids or () if each not in announced) for unit, ids in done.items()}


def _done(reader: Reader, view: BrokerView, flow: Flow, store: Store, header: str) -> set[str] | None:
    """The ids of buffered messages that the store of the site knows."""
    assert flow.buffer is not None
    origin = view.origin_of(flow.unit) or view.site
    held = [each for page in pages(reader, flow.buffer, origin, timeout_s=READ_S) for each in page]
    if len(held) != flow.buffer.depth or not all(each.named for each in held):
        return None
    ids = [each.id(header) for each in held]
    return {each for queue in view.queues_of(flow.unit) for each in store.known(queue.name, ids)}


def _announced(reader: Reader, buffer: Queue) -> str | None:
    """All that lies in the buffer of ids as one text: consumers word their announcements as they like."""
    rows: list[object] = []
    for page in range(1, -(-buffer.depth // PAGE) + 1):
        [answer] = reader.look([Ask(buffer.bean, Listing.BROWSE, (page, PAGE))], timeout_s=READ_S)
        rows += answer.value()
    return json.dumps(rows, ensure_ascii=False) if len(rows) == buffer.depth else None
