"""What brokers write about the messages they hold, turned into ledgers: `artemis data exp` and browse snapshots.

An export or a snapshot says what one site stored at one moment. A message's id must be the same at both sites, so it is
a property that its sender set (`property_name`); without one the message id that the client gave it (`user-id`), or the
origin that a mirror notes at its arrival. The broker's own number is not the same elsewhere and never taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq

from dr_ctl.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("queue", pa.string()),
        ("event", pa.string()),
        ("site", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
BORN, NUMBER = "x-opt-amq-bkr-id", "x-opt-amq-mr-id"
_BATCH: Final = 50_000
_PROPERTIES: Final = ("StringProperties", "LongProperties", "IntProperties")
Held = tuple[str, str]  # queue, id


def to_ledger(source: Path, target: Path, *, site: str, property_name: str | None) -> datetime:
    """Write what an export or a snapshot holds as a ledger of `stored` events, and say which moment it speaks of.

    That is the moment of the broker's answer in a snapshot, and the time of its last change of an exported file, which
    does not say it. Raises UsageError, with the place, where it is not one or a message in it has no id.
    """
    is_export = _first(source) == "<"
    at = datetime.fromtimestamp(source.stat().st_mtime, UTC)
    documents: list[dict[str, Any]] = []
    if not is_export:
        documents = _documents(source)
        at = max((_answered(told) for told in documents if "timestamp" in told), default=at)
    held = _exported(source, property_name) if is_export else _browsed(source, documents, property_name)
    with pq.ParquetWriter(target, SCHEMA) as writer:
        for batch in _batches(held):
            queues, ids = [queue for queue, _ in batch], [ident for _, ident in batch]
            count = len(batch)
            writer.write_table(pa.table([ids, queues, ["stored"] * count, [site] * count, [at] * count], schema=SCHEMA))
    return at


def _first(source: Path) -> str:
    with source.open(encoding="utf-8", errors="replace") as file:
        return file.read(256).lstrip("\ufeff \t\r\n")[:1]


def _batches(held: Iterable[Held]) -> Iterator[list[Held]]:
    batch: list[Held] = []
    for each in held:
        batch.append(each)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _exported(source: Path, property_name: str | None) -> Iterator[Held]:
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
            properties = {each.get("name"): each.get("value") for each in element.iter("property")}
            ident = _identity(properties, element.get("user-id"), property_name)
            if ident is None:
                raise _no_id(f"{source}: message {element.get('id')}", property_name)
            for queue in element.iter("queue"):
                yield str(queue.get("name")), ident
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
        told = json.loads(source.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: {error}", remedy="Give a whole answer of Jolokia, as it came.") from error
    documents = told if isinstance(told, list) else [told]
    for number, each in enumerate(documents, 1):
        is_answer = isinstance(each, dict) and "value" in each and isinstance(each.get("request"), dict)
        if not is_answer or "queue=" not in str(each["request"].get("mbean")):
            raise UsageError(
                f"{source}: document {number}: neither a ledger nor Jolokia's answer to a browse of a queue",
                remedy="A snapshot is the answer to `browse()` of a queue's MBean, its `request` included, "
                "or a list of such answers.",
            )
    return documents


def _answered(told: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(int(told["timestamp"]), UTC)


def _browsed(source: Path, documents: list[dict[str, Any]], property_name: str | None) -> Iterator[Held]:
    for number, told in enumerate(documents, 1):
        place = f"{source}: document {number}"
        queue = _queue_of(str(told["request"]["mbean"]))
        try:
            value = json.loads(told["value"]) if isinstance(told["value"], str) else told["value"]
            rows = value["data"] if isinstance(value, dict) else value
            for row in rows:
                properties = {name: each for part in _PROPERTIES for name, each in (row.get(part) or {}).items()}
                ident = _identity(properties, row.get("userID"), property_name)
                if ident is None:
                    raise _no_id(f"{place}: message {row.get('messageID')}", property_name)
                yield queue, ident
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise UsageError(
                f"{place}: {queue}: what was browsed is no list of messages ({error})",
                remedy="Give the answer to `browse()`, as it came; an answer with an error says nothing of the queue.",
            ) from error


def _queue_of(mbean: str) -> str:
    name = mbean.partition("queue=")[2]
    return name[1:].partition('"')[0] if name.startswith('"') else name.partition(",")[0]


def _identity(properties: dict[Any, Any], user_id: Any, property_name: str | None) -> str | None:
    if property_name is not None:
        told = properties.get(property_name)
        return None if told is None else str(told)
    if user_id:
        return str(user_id)
    born, number = properties.get(BORN), properties.get(NUMBER)
    return f"{born}:{number}" if born is not None and number is not None else None


def _no_id(place: str, property_name: str | None) -> UsageError:
    if property_name is not None:
        return UsageError(f"{place}: has no property {property_name}", remedy="Name a property that every message has.")
    return UsageError(
        f"{place}: has no id that is the same at both sites",
        remedy="Name, with --id, the property in which its sender says which message it is.",
    )
