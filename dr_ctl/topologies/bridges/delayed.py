"""Reads when the delayed messages of each buffer are due."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.client import Answer, Ask, Listing, Reader
from dr_ctl.topologies.bridges.view import BrokerView, Flow

READ_UP_TO: Final = 1_000
# When it is due, on the broker's clock; and how long after it came in, which is no later than so long from now.
_AT: Final = ("_AMQ_SCHED_DELIVERY", "x-opt-delivery-time")
_AFTER: Final = "x-opt-delivery-delay"


def with_due(reader: Reader, view: BrokerView) -> BrokerView:
    return replace(view, flows=tuple(_read(reader, view)))


def _read(reader: Reader, view: BrokerView) -> Iterator[Flow]:
    for flow in view.flows:
        if flow.buffer is None or not 0 < flow.not_due <= READ_UP_TO:
            yield flow
            continue
        try:
            [answer] = reader.look([Ask(flow.buffer.bean, Listing.SCHEDULED)])
            yield replace(flow, due_s=_due_s(answer, view.now_ms))
        except (BrokerError, ValueError, TypeError, AttributeError):
            yield flow


def _due_s(answer: Answer, now_ms: int) -> tuple[float, ...]:
    return tuple(_latest_s(row, now_ms) for row in json.loads(str(answer.value())))


def _latest_s(row: Mapping[str, Any], now_ms: int) -> float:
    at = next((int(row[name]) for name in _AT if name in row), None)
    if at is not None:
        return (at - now_ms) / 1000
    return int(row[_AFTER]) / 1000 if _AFTER in row else inf
