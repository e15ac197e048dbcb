"""The files of a history to read: of its folder, or of a store elsewhere and of the folder on this machine that has the
last hours too. Who must not wait for the store reads what lies here once the store has not answered in time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dr_ctl.core.clock import growing_s
from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.model import Finding
from dr_ctl.core.system import beside
from dr_ctl.rpo.findings import STORE_SILENT
from dr_ctl.rpo.history.files import NAMED, SCHEMA, TAILS, listed_anew, rows_of_tail, without, wrong_columns
from dr_ctl.rpo.history.store import Store
from dr_ctl.settings.model import Place

Answer = TypeVar("Answer")
WITHIN_S: Final = 3.0
"""So long a store elsewhere is waited for, where what lies on this machine does instead."""
ALONE_S: Final = 30.0
"""And so long where nothing lies on this machine: without the store nothing is known at all."""
FAR_BACK: Final = 250
"""So many files at most are searched for an earlier look: an hour of a monitor that writes one a minute, and a week of
joined hours."""
AGAIN_S: Final = 60.0
"""After so long a store that did not answer is asked again."""
_silent_until: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the history, or a tail, and where it is read."""

    store: Store
    name: str

    @property
    def base(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """The name for a person; on this machine the path."""
        return Path(self.store.url(self.name))

    def opened(self) -> AbstractContextManager[pq.ParquetFile]:
        """Raises FileNotFoundError where it is gone."""
        return self.store.parquet(self.name)

    def rows(self, columns: Sequence[str] = SCHEMA.names, where: pc.Expression | None = None) -> pa.Table:
        """The rows of which that is so; columns that the file may lack are null. Groups of rows that hold none of them
        are not read. Raises FileNotFoundError, and OSError or ArrowException where it is torn, or none of a history."""
        if fnmatch(self.base, TAILS):
            rows = rows_of_tail(self.path)
            return (rows if where is None else rows.filter(where)).select([*columns])
        with self.store.opened(self.name) as file:
            fragment = ds.ParquetFileFormat().make_fragment(file)
            if wrong := wrong_columns(fragment.physical_schema):
                raise pa.ArrowInvalid(wrong)
            return fragment.to_table(SCHEMA, columns=[*columns], filter=where, use_threads=False)

    def why_not(self, columns: Sequence[str] = SCHEMA.names) -> str | None:
        """Why these columns cannot be read to their ends (without one, the footer); None where they can. Raises
        FileNotFoundError."""
        return self._read(columns)[1]

    def told(
        self, findings: list[Finding], columns: Sequence[str] = SCHEMA.names, where: pc.Expression | None = None
    ) -> pa.Table:
        """Its rows; none where it cannot be read, which a finding then says. Raises FileNotFoundError."""
        rows, why = self._read(columns, where)
        if why is not None and (finding := without(self.name, why)) not in findings:
            findings.append(finding)
        return rows

    def _read(self, columns: Sequence[str], where: pc.Expression | None = None) -> tuple[pa.Table, str | None]:
        try:
            return self.rows(columns, where), None
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            self.store.must_answer(self.name)
            return SCHEMA.empty_table().select([*columns]), f"it cannot be read ({str(error).splitlines()[0]})"


def rows_of(
    files: Iterable[Source],
    findings: list[Finding],
    columns: Sequence[str] = SCHEMA.names,
    where: pc.Expression | None = None,
) -> pa.Table:
    """The rows of files together. Raises FileNotFoundError."""
    told = (each.told(findings, columns, where) for each in files)
    return pa.concat_tables([SCHEMA.empty_table().select([*columns]), *told])


class Sources:
    """Files in several stores as one history: where two have one of the same name the first counts."""

    def __init__(self, near: Path, *others: Store) -> None:
        """`near`: the folder with the last minute of looks, which is always on this machine."""
        self._near, self._stores = near, (Store.of(near), *others)

    def newest_first(self, site: str, since: datetime | None = None, until: datetime | None = None) -> Iterator[Source]:
        """The files of one site, the newest first by their names, which begin with the time of their first look.
        `since` and `until` leave out whole days only.

        Lists a day's directory only when it is asked for: the last minutes of a long history are found at once.
        """
        for day in sorted(self._days(), reverse=True):
            if _day_within(day, since, until):
                yield from sorted(self._of(f"{day}/site={site}"), key=lambda each: each.base, reverse=True)

    def tails(self, site: str) -> Iterator[Source]:
        """The files with a monitor's last minute, which may not be in the history yet."""
        for day in sorted(self._near.glob("date=*"), reverse=True)[:2]:
            for path in sorted((day / f"site={site}").glob(TAILS), reverse=True):
                yield Source(self._stores[0], path.relative_to(self._near).as_posix())

    def text(self, name: str) -> str | None:
        """What a file beside the history says, of the store elsewhere; None where there is none."""
        for store in self._stores[1:]:
            with suppress(FileNotFoundError), store.opened(name) as file:
                return str(file.read().decode())
        return None

    def _days(self) -> set[str]:
        return {each for store in self._stores for each in store.directly() if each.startswith("date=")}

    def _of(self, folder: str) -> list[Source]:
        named: dict[str, Source] = {}
        for store in self._stores:
            for name in store.directly(folder):
                if NAMED.fullmatch(name):
                    named.setdefault(name, Source(store, name))
        return [*named.values()]


def read(
    history: Path | Place, ask: Callable[[Sources], Answer], *, within_s: float | None = None
) -> tuple[Answer, list[Finding]]:
    """Have the files of a history read, anew where one goes meanwhile. Of a history elsewhere what lies on this machine
    alone is read where the store does not answer in time; the finding says so."""
    place = Place.at(history) if isinstance(history, Path) else history

    def here() -> Answer:
        return listed_anew(lambda: ask(Sources(place.near)))

    def there() -> Answer:
        store = Store.of(place.where, hurried=within_s is None)
        return listed_anew(lambda: ask(Sources(place.near, store)))

    if place.folder is not None:
        return here(), []
    why = "it did not answer a moment ago"
    if growing_s() >= _silent_until.get(place.where, 0.0):
        is_here = any(place.near.glob("date=*/site=*/*"))
        limit_s = within_s or (WITHIN_S if is_here else ALONE_S)
        answers, errors = in_time(there, limit_s)
        if answers:
            return answers[0], []
        _silent_until[place.where] = growing_s() + AGAIN_S
        why = str(errors[0]).splitlines()[0] if errors else f"no answer within {limit_s:g} s"
    text = f"the history at {place.shown} was not read ({why}): figures rest on what lies in {place.near}"
    remedy = "See that this machine reaches the store, with credentials that may read it."
    return here(), [STORE_SILENT(text, remedy)]


def shown(history: Path | Place) -> str:
    """Where it lies, in words."""
    return str(history) if isinstance(history, Path) else history.shown


def in_time(ask: Callable[[], Answer], within_s: float) -> tuple[list[Answer], list[Exception]]:
    """The answer, or the error; neither where it comes too late, and nobody waits for it."""
    asking = beside(ask, "history")
    if not asking.wait(within_s):
        return [], []
    try:
        return [asking.result()], []
    except (OSError, pa.ArrowException, DrCtlError) as error:
        return [], [error]


def _day_within(day: str, since: datetime | None, until: datetime | None) -> bool:
    day = day.removeprefix("date=")
    after = since is None or day >= since.astimezone(UTC).date().isoformat()
    before = until is None or day <= until.astimezone(UTC).date().isoformat()
    return after and before
