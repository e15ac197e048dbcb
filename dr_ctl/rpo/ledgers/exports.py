"""Turns the brokers' own lists of messages into ledgers: `artemis data exp` and browse snapshots.

An export or a snapshot lists the messages of a site at one moment. Ids must be the same at both sites: a property that
the sender set (`property_name`), else the client's message id or the origin that a mirror notes. The broker's own
number differs between sites and is never taken; nor is the `user-id` that an export makes up for a message of AMQP,
whose id stands beside it.

Brokers keep more in queues than clients' messages. A message that the continuity plugin has staged for a queue counts
as held there. Messages under way to the other broker, and the broker's own, are only counted.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq

from dr_ctl.core.errors import UsageError

SCHEMA: Final = pa.schema(
    [*((name, pa.string()) for name in ("id", "queue", "event", "site")), ("ts", pa.timestamp("us", tz="UTC"))]
)
BORN, NUMBER = "x-opt-amq-bkr-id", "x-opt-amq-mr-id"
_BATCH: Final = 50_000
# An export says of an id of AMQP which type it has, and a browse does not.
_NATIVE: Final = "NATIVE_MESSAGE_ID"
_ID: Final = "ID:"  # begins each id in a browse, as at its clients, and in an export only some
_TYPE: Final = re.compile("^ID:AMQP_(NO_PREFIX|UUID|ULONG):")
# A browse shows a message of AMQP by sections: what its sender wrote, and what the broker did.
_SENT, _BY_BROKER = "applicationProperties.", "extraProperties."
_PROPERTIES: Final = ("StringProperties", "LongProperties", "IntProperties")
Held = tuple[str, str]  # queue, id
STAGED: Final = ".in.mirror"
SHIPPED: Final = (".out.mirror", ".out.acks", ".in.acks")
OWN: Final = (
    "$ACTIVEMQ_ARTEMIS_MIRROR_", "$.artemis.", "$sys.", "activemq.management", "activemq.notifications", "notif.",
    "continuity.cmd.", "dr-ctl.", "rehearsal.dr-ctl.",
)  # fmt: skip
_SECOND_US: Final = 999_999


@dataclass(slots=True)
class Export:
    """An export or a snapshot: begun `at` a moment, lasting `blur_us`; `left_out` counts messages in queues that are
    not clients'."""

    at: datetime
    blur_us: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def place(self, queue: str) -> str | None:
        """The clients' queue that holds the message; None for a broker's own queue."""
        if queue.startswith(OWN) or queue.endswith(SHIPPED):
            self.left_out[queue] += 1
            return None
        return queue.removesuffix(STAGED)


def to_ledger(source: Path, target: Path, *, site: str, moment: datetime | None, property_name: str | None) -> Export:
    """Write what an export or a snapshot holds as a ledger of `stored` events.

    A snapshot tells when the broker answered, to the second; an export does not, and its file's time is when somebody
    wrote or copied it: `moment` says it. Raises UsageError, with the place, where it is not one, where nobody says of
    which moment it is, or where a message in it has no id.
    """
    is_export = _first(source) == "<"
    documents = [] if is_export else _documents(source)
    export = _of_moment(source, documents, moment)
    held = _exported(source, export, property_name) if is_export else _browsed(source, documents, export, property_name)
    with pq.ParquetWriter(target, SCHEMA) as writer:
        for batch in iter(lambda: list(islice(held, _BATCH)), []):
            queues, ids = [queue for queue, _ in batch], [ident for _, ident in batch]
            count = len(batch)
            columns = [ids, queues, ["stored"] * count, [site] * count, [export.at] * count]
            writer.write_table(pa.table(columns, schema=SCHEMA))
    return export


def _of_moment(source: Path, documents: list[dict[str, Any]], moment: datetime | None) -> Export:
    if moment is not None:
        return Export(moment)
    answered = [datetime.fromtimestamp(int(reply["timestamp"]), UTC) for reply in documents if "timestamp" in reply]
    if not answered or len(answered) < len(documents):
        raise UsageError(
            f"{source}: of which moment is it?",
            remedy="Write SITE=FILE@MOMENT: when that broker had stopped, or answered, as in "
            "london=export.xml@2026-11-21T09:15:12Z. The time of the file is when it was written.",
        )
    took = max(answered) - min(answered)
    return Export(min(answered), took // timedelta(microseconds=1) + _SECOND_US)


def _first(source: Path) -> str:
    with source.open(encoding="utf-8", errors="replace") as file:
        return file.read(256).lstrip("\ufeff \t\r\n")[:1]


def _exported(source: Path, export: Export, property_name: str | None) -> Iterator[Held]:
    root: ET.Element | None = None
    held: ET.Element | None = None
    try:
        for event, element in ET.iterparse(source, events=("start", "end")):  # noqa: S314 - expands no external entity
            if event == "start":
                if root is None and element.tag != "activemq-journal":
                    raise UsageError(
                        f"{source}: line 1: an XML document of another kind (<{element.tag}>)",
                        remedy="Give what `artemis data exp` wrote.",
                    )
                root = element if root is None else root
                held = element if element.tag == "messages" else held
                continue
            if element.tag != "message":
                continue
            places = {export.place(str(queue.get("name"))) for queue in element.iter("queue")} - {None}
            properties = {each.get("name"): each.get("value") for each in element.iter("property")}
            native = properties.get(_NATIVE)
            user_id = _TYPE.sub(_ID, native) if native is not None else element.get("user-id")
            ident = _identity(properties, properties, user_id, property_name)
            if ident is None and places:
                raise _no_id(f"{source}: message {element.get('id')}", property_name)
            yield from ((place, str(ident)) for place in sorted(map(str, places)))
            if held is not None:
                held.clear()  # an export is as large as the broker's journal
    except ET.ParseError as error:
        line, column = error.position
        raise UsageError(
            f"{source}: line {line}, column {column}: {error.msg}",
            remedy="The export is not whole: write it again, with the broker stopped, by `artemis data exp`.",
        ) from error


def _documents(source: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: {error}", remedy="Give a whole answer of Jolokia, as it came.") from error
    documents = content if isinstance(content, list) else [content]
    for number, each in enumerate(documents, 1):
        is_answer = isinstance(each, dict) and "value" in each and isinstance(each.get("request"), dict)
        if not is_answer or "queue=" not in str(each["request"].get("mbean")):
            raise UsageError(
                f"{source}: document {number}: neither a ledger nor Jolokia's answer to a browse of a queue",
                remedy="A snapshot is the answer to `browse()` of a queue's MBean, its `request` included, "
                "or a list of such answers.",
            )
    return documents


def _browsed(
    source: Path, documents: list[dict[str, Any]], export: Export, property_name: str | None
) -> Iterator[Held]:
    for number, reply in enumerate(documents, 1):
        place = f"{source}: document {number}"
        queue = _queue_of(str(reply["request"]["mbean"]))
        try:
            value = json.loads(reply["value"]) if isinstance(reply["value"], str) else reply["value"]
            rows = value["data"] if isinstance(value, dict) else value
            for row in rows:
                if (held := export.place(queue)) is None:
                    continue
                properties = {name: each for part in _PROPERTIES for name, each in (row.get(part) or {}).items()}
                sections = (_SENT, _BY_BROKER) if row.get("protocol") == "AMQP" else ("", "")
                sender, broker = (
                    {name.removeprefix(of): value for name, value in properties.items() if name.startswith(of)}
                    for of in sections
                )
                ident = _identity(sender, broker, row.get("userID"), property_name)
                if ident is None:
                    raise _no_id(f"{place}: message {row.get('messageID')}", property_name)
                yield held, ident
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise UsageError(
                f"{place}: {queue}: what was browsed is no list of messages ({error})",
                remedy="Give the answer to `browse()`, as it came; an answer with an error says nothing of the queue.",
            ) from error


def _queue_of(mbean: str) -> str:
    name = mbean.partition("queue=")[2]
    return name[1:].partition('"')[0] if name.startswith('"') else name.partition(",")[0]


def _identity(
    sender: Mapping[Any, Any], broker: Mapping[Any, Any], user_id: Any, property_name: str | None
) -> str | None:
    if property_name is not None:
        value = sender.get(property_name)
        return None if value is None else str(value)
    if user_id:
        return f"{_ID}{str(user_id).removeprefix(_ID)}"
    born, number = broker.get(BORN), broker.get(NUMBER)
    return f"{born}:{number}" if born is not None and number is not None else None


def _no_id(place: str, property_name: str | None) -> UsageError:
    if property_name is not None:
        return UsageError(f"{place}: has no property {property_name}", remedy="Name a property that every message has.")
    return UsageError(
        f"{place}: has no id that is the same at both sites",
        remedy="Name, with --id, the property in which its sender says which message it is.",
    )
