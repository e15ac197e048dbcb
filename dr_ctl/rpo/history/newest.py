"""The newest looks at one site, from the few files of the history that hold them. Spark would be too slow.

Only rows are gathered here; `bounds` draws the conclusions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.model import Finding
from dr_ctl.rpo.findings import FILES_LEFT_OUT, NO_HISTORY
from dr_ctl.rpo.history.files import left_out, listed_anew, newest_first, tails
from dr_ctl.rpo.history.row import micros

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OUTFLOWS: Final = ("mirror", "acks", "mixed")
US: Final = 1_000_000
WINDOW_US: Final = 600 * US
"""How much before the last look at an outflow is read for its rate."""
OTHERS_WITHIN_US: Final = 3600 * US
"""How much before the newest look at any outflow is searched for those of other pairs."""
SILENT_WITHIN_US: Final = 86_400 * US
"""How long a site may have been silent for its last looks to be searched behind the silence."""
NOW_US: Final = 1 << 62
"""Later than any look."""
_NAME_TIME: Final = "%Y%m%dT%H%M%S"
_NEEDED_INTERVALS: Final = 2
_COLUMNS: Final = ("pair", "kind", "name", "depth", "delivering", "added", "acked", "start")
_MORE: Final = ("removed", "oldest_ms", "link")


class Count(NamedTuple):
    """A thing at a look, `us` microseconds after 1970. None: not read. (A tuple, because there are very many.)"""

    us: int
    depth: int | None
    delivering: int | None
    added: int | None
    acked: int | None
    start: str | None


@dataclass(slots=True)
class Recent:
    """The looks at each outflow and queue by (pair, kind, name), and the site's role at each look."""

    pairs: set[str] = field(default_factory=set)
    counts: dict[tuple[str, str, str], list[Count]] = field(default_factory=lambda: defaultdict(list))
    roles: list[tuple[int, str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)  # the rows as columns

    def outflows(self, pair: str) -> dict[tuple[str, str], list[Count]]:
        """The outflows of a pair by kind and name."""
        return {key[1:]: looks for key, looks in self.counts.items() if key[0] == pair and key[1] in OUTFLOWS}

    def staged(self, pair: str) -> dict[str, list[Count]]:
        """Copies at the other site of each flow, by queue."""
        return {key[2]: looks for key, looks in self.counts.items() if key[0] == pair and key[1] == "staged"}

    def queues(self, pair: str) -> dict[str, list[Count]]:
        return {key[2]: looks for key, looks in self.counts.items() if key[0] == pair and key[1] == "queue"}


def recent(
    history: Path,
    site: str,
    pairs: Sequence[str] = (),
    *,
    silent_within_us: int = SILENT_WITHIN_US,
    until_us: int = NOW_US,
) -> Recent:
    """Read backwards until every pair's outflow has been seen with some minutes before it, or the search is over.

    `pairs` are those that the settings name; without them, those that the newest looks name. `silent_within_us`: how
    far back an outflow is searched for where none was looked at. Looks after `until_us` are passed over.
    """
    return listed_anew(lambda: _recent(history, site, pairs, silent_within_us, until_us))


def _recent(history: Path, site: str, pairs: Sequence[str], silent_within_us: int, until_us: int) -> Recent:
    recent_looks = Recent(pairs=set(pairs))
    newest_us: int | None = None
    is_any = False
    for path in tails(history, site):
        is_any = True
        finding = _take(path, history, recent_looks, is_fixed=bool(pairs), until_us=until_us)
        if finding is not None:
            recent_looks.findings.append(finding)
    for path in newest_first(history, site):
        begin_us = _begin_us(path)
        if begin_us is not None and begin_us > until_us:
            continue
        if (
            begin_us is not None
            and newest_us is not None
            and _is_enough(recent_looks, begin_us, newest_us - silent_within_us)
        ):
            break
        newest_us = begin_us if newest_us is None else newest_us
        is_any = True
        finding = left_out(path, history) or _take(path, history, recent_looks, is_fixed=bool(pairs), until_us=until_us)
        if finding is not None:
            recent_looks.findings.append(finding)
    if not is_any:
        text = f"there is no history of {site} in {history}: what it still had to ship is not known"
        remedy = "Let `dr-ctl monitor` run: it records what a failover needs to know."
        recent_looks.findings.append(NO_HISTORY(text, remedy))
    recent_looks.roles = sorted(set(recent_looks.roles))
    for key, looks in recent_looks.counts.items():
        # A look may be in a file and, after a crash, in the tail too.
        recent_looks.counts[key] = list({look.us: look for look in sorted(looks, key=lambda look: look.us)}.values())
    return recent_looks


def _is_enough(recent_looks: Recent, begin_us: int, silent_us: int) -> bool:
    """Say whether a file that begins then, and all before it, have nothing more to tell."""
    last = [max(look.us for look in looks) for key, looks in recent_looks.counts.items() if key[1] in OUTFLOWS]
    if not last:
        return begin_us < silent_us
    if begin_us < max(last) - OTHERS_WITHIN_US:
        return True
    if begin_us >= min(last) - WINDOW_US:
        return False
    flows = [recent_looks.outflows(pair) for pair in recent_looks.pairs]
    return all(flows) and all(len(looks) > _NEEDED_INTERVALS for each in flows for looks in each.values())


def _begin_us(path: Path) -> int | None:
    """The first look of a file, by its name; None where the monitor did not choose the name."""
    try:
        return micros(datetime.strptime(path.name.partition("-")[0], _NAME_TIME).replace(tzinfo=UTC))
    except ValueError:
        return None


def _only_one_role(path: Path, recent_looks: Recent, until_us: int) -> bool:
    """Take a file of a silent site by its moments alone: a day of silence is more than a thousand such files.

    A missing moment would be a gap in the run of looks that saw the site down, so every moment is read.
    """
    with pq.ParquetFile(path) as file:
        return _is_one_role(file, recent_looks, until_us)


def _is_one_role(file: pq.ParquetFile, recent_looks: Recent, until_us: int) -> bool:
    if file.num_row_groups != 1:
        return False
    group = file.metadata.row_group(0)
    columns = {group.column(place).path_in_schema: group.column(place).statistics for place in range(group.num_columns)}
    kind, role = columns["kind"], columns["name"]
    if not all(each is not None and each.has_min_max for each in (kind, role)):
        return False
    if (kind.min, kind.max) != ("site", "site") or role.min != role.max:
        return False
    moments = file.read(columns=["ts"]).column("ts").cast(pa.int64()).unique().to_pylist()
    recent_looks.roles += [(us, role.min) for us in moments if us <= until_us]
    return True


def _take(path: Path, history: Path, recent_looks: Recent, *, is_fixed: bool, until_us: int) -> Finding | None:
    """Take the rows of a file; returns a finding where its inside cannot be read. Raises FileNotFoundError."""
    try:
        if not _only_one_role(path, recent_looks, until_us):
            _add(path, recent_looks, is_fixed=is_fixed, until_us=until_us)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        text = f"{path.relative_to(history)} is left out: {str(error).splitlines()[0]}"
        return FILES_LEFT_OUT(text, "Its looks are missing from the figures.")
    return None


def _add(path: Path, recent_looks: Recent, *, is_fixed: bool, until_us: int) -> None:
    with pq.ParquetFile(path) as file:
        table = _last_minutes(file, until_us)
    if until_us != NOW_US:
        table = table.filter(pc.less_equal(table["ts"].cast(pa.int64()), until_us))
    recent_looks.tables.append(table)
    moments = table.column("ts").cast(pa.int64()).to_pylist()
    columns = [table.column(name).to_pylist() for name in _COLUMNS]
    for us, pair, kind, name, *counted in zip(moments, *columns, strict=True):
        if kind == "site":
            recent_looks.roles.append((us, name))
        if pair is None or (is_fixed and pair not in recent_looks.pairs):
            continue
        recent_looks.pairs.add(pair)
        if kind != "site":
            recent_looks.counts[pair, kind, name].append(Count(us, *counted))


def _last_minutes(file: pq.ParquetFile, until_us: int) -> pa.Table:
    """The rows of a file. From a joined hour: every role, and the minutes before `until_us` or before each pair's last
    look at an outflow. An hour of looks at ten thousand queues has millions of rows."""
    wanted = ["ts", *_COLUMNS, *_MORE]
    groups = [_Group.of(file.metadata.row_group(number)) for number in range(file.num_row_groups)]
    if len(groups) == 1 or None in groups:
        return file.read(columns=wanted)
    outer = [n for n, each in enumerate(groups) if each is not None and each.first_kind != "queue"]
    looks = file.read_row_groups(outer, columns=["ts", "pair", "kind"])
    of_outflows = looks.filter(pc.is_in(looks["kind"], pa.array(OUTFLOWS)))
    ends = of_outflows.group_by("pair").aggregate([("ts", "max")])["ts_max"].cast(pa.int64()).to_pylist()
    ends = ends or [max(each.last_us for each in groups if each is not None)]
    ends = [min(end, until_us) for end in ends]
    near = [n for n, each in enumerate(groups) if each is not None and each.is_near(ends)]
    far = file.read_row_groups([n for n in outer if n not in near], columns=wanted)
    return pa.concat_tables([file.read_row_groups(near, columns=wanted), far.filter(pc.equal(far["kind"], "site"))])


class _Group(NamedTuple):
    """The footer's statistics on a group of rows."""

    first_kind: str
    first_us: int
    last_us: int

    @classmethod
    def of(cls, group: pq.RowGroupMetaData) -> Self | None:
        columns = {
            group.column(place).path_in_schema: group.column(place).statistics for place in range(group.num_columns)
        }
        kind, ts = columns["kind"], columns["ts"]
        if not all(each is not None and each.has_min_max for each in (kind, ts)):
            return None
        return cls(kind.min, micros(ts.min), micros(ts.max))

    def is_near(self, ends: Sequence[int]) -> bool:
        return any(self.first_us <= end and end - WINDOW_US <= self.last_us for end in ends)
