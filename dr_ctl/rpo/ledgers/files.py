"""Ledgers as files: which kind each is, whether its columns are there, and where one is wrong; and the brokers' own
lists of messages (`artemis data exp`, browse snapshots) turned into ledgers. No Spark here.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
# A browse shows a message of AMQP by sections: the sender's, and the broker's.
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
        """Return the clients' queue that holds the message, or None for a broker's own queue."""
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
    is_export = _begin(source)[:1] == "<"
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
            properties = {entry.get("name"): entry.get("value") for entry in element.iter("property")}
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
    for number, reply in enumerate(documents, 1):
        is_answer = isinstance(reply, dict) and "value" in reply and isinstance(reply.get("request"), dict)
        if not is_answer or "queue=" not in str(reply["request"].get("mbean")):
            raise UsageError(
                f"{source}: document {number}: neither a ledger nor Jolokia's answer to a browse of a queue",
                remedy="A snapshot is the answer to `browse()` of a queue's MBean, its `request` included, "
                "or a list of such answers.",
            )
    return documents


def _browsed(source: Path, replies: list[dict[str, Any]], export: Export, property_name: str | None) -> Iterator[Held]:
    for number, reply in enumerate(replies, 1):
        place = f"{source}: document {number}"
        queue = _queue_of(str(reply["request"]["mbean"]))
        try:
            value = json.loads(reply["value"]) if isinstance(reply["value"], str) else reply["value"]
            rows = value["data"] if isinstance(value, dict) else value
            for row in rows:
                if (held := export.place(queue)) is None:
                    continue
                properties = {name: value for part in _PROPERTIES for name, value in (row.get(part) or {}).items()}
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


COLUMNS: Final = ("id", "queue", "event", "site", "ts")
EVENTS: Final = ("sent", "stored", "consumed", "send-in-doubt", "received", "ack-in-doubt")
_REMEDY: Final = f"A ledger is Parquet or JSON lines with {', '.join(COLUMNS)}."


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger of the command line. `export` is set for an export or a snapshot: a message that it lacks was absent."""

    argument: str
    paths: tuple[str, ...]
    is_parquet: bool
    ts_is_text: bool = True
    site: str | None = None
    export: Export | None = None


def ledgers(arguments: Sequence[str], scratch: Path, *, property_name: str | None = None) -> list[Ledger]:
    """Look at every ledger, `[SITE=]FILE[@MOMENT]`; exports and snapshots are turned into Parquet under `scratch`.

    Raises UsageError for the first that is none, with the place and the remedy.
    """
    return [_ledger(given, scratch / f"{number}.parquet", property_name) for number, given in enumerate(arguments)]


def sizes(arguments: Sequence[str]) -> dict[str, int]:
    """Return the size of each file of the ledgers. While a ledger is written a size changes, or a file comes or
    goes."""
    places = [path for _, path, _ in map(_split, arguments)]
    by_name: dict[str, int] = {}
    for file in (file for path in places for file in ([path] if path.is_file() else path.rglob("*"))):
        with suppress(FileNotFoundError):  # gone since it was listed
            by_name |= {str(file): file.stat().st_size} if file.is_file() else {}
    return by_name


def _ledger(argument: str, scratch: Path, property_name: str | None) -> Ledger:
    site, path, moment = _split(argument)
    if not path.exists():
        raise UsageError(
            f"no ledger {path}", remedy="Name a file, a folder of Parquet or JSON-lines files, or SITE=FILE."
        )
    files = _files(path)
    kinds, paths = {_kind(file) for file in files}, tuple(map(str, files))
    if moment is not None and kinds != {"export"}:
        raise UsageError(f"{path}: a ledger tells the moment of each event itself", remedy="Leave @MOMENT out.")
    if kinds == {"parquet"}:
        texts = {_ts_is_text(file) for file in files}
        if len(texts) > 1:
            raise UsageError(f"{path}: `ts` is a timestamp in some files and a string in others", remedy=_REMEDY)
        return Ledger(argument, paths, is_parquet=True, ts_is_text=texts.pop(), site=site)
    if kinds <= {"lines", "empty"}:
        return Ledger(argument, paths, is_parquet=False, site=site)
    if kinds == {"export"} and len(files) == 1:
        if site is None:
            remedy = "Write SITE=FILE@MOMENT: an export or a snapshot does not say whose it is."
            raise UsageError(f"{path}: whose messages are these?", remedy=remedy)
        held = to_ledger(files[0], scratch, site=site, moment=moment, property_name=property_name)
        return Ledger(argument, (str(scratch),), True, False, site, held)
    raise UsageError(f"{path}: files of several kinds in one ledger: {', '.join(sorted(kinds))}", remedy=_REMEDY)


def _split(argument: str) -> tuple[str | None, Path, datetime | None]:
    """A file whose own name holds an equals sign, or an at, is still a file."""
    before, equals, after = argument.partition("=")
    site, name = (before, after) if equals and not Path(argument).exists() else (None, argument)
    file, at, moment = name.rpartition("@")
    if at and not Path(name).exists() and Path(file).exists():
        return site, Path(file), _moment(moment)
    return site, Path(name), None


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(f"@{text} is no moment", remedy="Write it with its time zone, as in @2026-11-21T09:15:12Z.")
    return moment


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".", "_")))
    if not files:
        raise UsageError(f"{path}: an empty folder", remedy=_REMEDY)
    return files


def _begin(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(4096).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")


def _kind(file: Path) -> str:
    text = _begin(file)
    if text[:4] == "PAR1":
        return "parquet"
    if not text:
        return "empty"
    if text[0] == "<" or text[0] == "[":
        return "export"
    if text[0] == "{":
        is_snapshot = '"request"' in text and '"mbean"' in text
        return "export" if is_snapshot else "lines"
    raise UsageError(f"{file}: line 1: {text.splitlines()[0][:60]!r} is the beginning of no ledger", remedy=_REMEDY)


def _ts_is_text(file: Path) -> bool:
    """Check the columns on the way: raises UsageError where they are not those of a ledger."""
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(
            f"{file}: cannot be opened ({str(error).splitlines()[0]})", remedy="Copy it again; it is not whole."
        ) from error
    missing = [column for column in COLUMNS if column not in schema.names]
    if missing:
        raise UsageError(f"{file}: lacks the columns {', '.join(missing)}", remedy=_REMEDY)
    ts = schema.field("ts").type
    fit = {"ts"} if pa.types.is_timestamp(ts) and ts.unit in ("ms", "us") else set()
    wrong = [field for field in map(schema.field, COLUMNS) if field.name not in fit and not _is_text(field.type)]
    if wrong:
        types = ", ".join(f"{field.name} is {field.type}" for field in wrong)
        raise UsageError(f"{file}: {types}", remedy="Strings, and `ts` a timestamp or a string.")
    return not fit


def _is_text(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def first_bad(ledger: Ledger) -> tuple[str, bool]:
    """Say where the first line is that is no event, and whether it is only a torn last one, which a crash leaves."""
    if ledger.is_parquet:
        return f"{ledger.argument}: a row with an empty column, a `ts` that is no time, or an unknown event", False
    for path in ledger.paths:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                why = _why_bad(line)
                if why is not None:
                    return f"{path}: line {number}: {why}", not line.endswith("\n")
    return f"{ledger.argument}: a line whose `ts` is no time", False


def _why_bad(line: str) -> str | None:
    if not line.strip():
        return None
    try:
        row = json.loads(line)
    except ValueError as error:
        return f"no JSON ({error})"
    if not isinstance(row, dict):
        return "no JSON object"
    for column in COLUMNS:
        if row.get(column) is None:
            return f"lacks {column}"
    if row["event"] not in EVENTS:
        return f"unknown event {row['event']!r}: it is one of {', '.join(EVENTS)}"
    try:
        datetime.fromisoformat(str(row["ts"]))
    except ValueError:
        return f"ts {row['ts']!r} is no time: write it as 2026-11-21T09:15:12.345Z"
    return None
