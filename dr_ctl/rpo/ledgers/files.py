"""Ledgers as files: which kind each is, whether its columns are there, and where one is wrong. No Spark here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dr_ctl.core.errors import UsageError
from dr_ctl.rpo.ledgers.exports import to_ledger

COLUMNS: Final = ("id", "queue", "event", "site", "ts")
EVENTS: Final = ("sent", "stored", "consumed", "send-in-doubt", "received", "ack-in-doubt")
_REMEDY: Final = f"A ledger is Parquet or JSON lines with {', '.join(COLUMNS)}."
_EXPORT_REMEDY: Final = "Write SITE=FILE@MOMENT: an export or a snapshot does not say whose it is."


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger of the command line. `looked_at` is set for an export or a snapshot, in which a missing message was
    absent; its looks began then and took `blur_us`. `left_out` counts messages in queues that are not clients'."""

    argument: str
    paths: tuple[str, ...]
    is_parquet: bool
    ts_is_text: bool = True
    site: str | None = None
    looked_at: datetime | None = None
    blur_us: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)


def ledgers(arguments: Sequence[str], scratch: Path, *, property_name: str | None = None) -> list[Ledger]:
    """Look at every ledger, `[SITE=]FILE[@MOMENT]`; exports and snapshots are turned into Parquet under `scratch`.

    Raises UsageError for the first that is none, with the place and the remedy.
    """
    return [_ledger(each, scratch / f"{number}.parquet", property_name) for number, each in enumerate(arguments)]


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
            raise UsageError(f"{path}: whose messages are these?", remedy=_EXPORT_REMEDY)
        held = to_ledger(files[0], scratch, site=site, moment=moment, property_name=property_name)
        return Ledger(argument, (str(scratch),), True, False, site, held.at, held.blur_us, held.left_out)
    raise UsageError(f"{path}: files of several kinds in one ledger: {', '.join(sorted(kinds))}", remedy=_REMEDY)


def _split(argument: str) -> tuple[str | None, Path, datetime | None]:
    """A file whose own name holds an equals sign, or an at, is still a file."""
    before, equals, after = argument.partition("=")
    site, rest = (before, after) if equals and not Path(argument).exists() else (None, argument)
    file, at, moment = rest.rpartition("@")
    if at and not Path(rest).exists() and Path(file).exists():
        return site, Path(file), _moment(moment)
    return site, Path(rest), None


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
    files = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith((".", "_")))
    if not files:
        raise UsageError(f"{path}: an empty folder", remedy=_REMEDY)
    return files


def _kind(file: Path) -> str:
    with file.open("rb") as opened:
        begin = opened.read(4096)
    if begin[:4] == b"PAR1":
        return "parquet"
    text = begin.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
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
    wrong = [each for each in map(schema.field, COLUMNS) if each.name not in fit and not _is_text(each.type)]
    if wrong:
        told = ", ".join(f"{each.name} is {each.type}" for each in wrong)
        raise UsageError(f"{file}: {told}", remedy="Strings, and `ts` a timestamp or a string.")
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
