"""What every store of documents keeps to, whoever holds them: files of this machine, or brokers of each topology; and
that a small look says of outflows and roles what a whole one says."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.system import all_ended, in_background, system
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.lease import LOCK, FolderStore, Store, next_epoch, read_locks
from dr_ctl.rpo.history.row import OUTFLOW_READING_KINDS, Row
from dr_ctl.settings.loader import load
from dr_ctl.topologies import registry
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, MIRROR
from dr_ctl_lab.twin.nodes import Layout

TEXTS = (
    *("", "{}", '{"run": "20261121T02', "[1]", "it's 'ours' \\ \"Größe\"\n\x09", "\"dr_ctl_says = 'x'\"", "x" * 20_000),
    *("[" * 100_000, '{"start": 1e999}', f'{{"start": {"9" * 5000}}}', "ERROR: no such attribute (class a.B)"),
)
SPLIT = '{"paused_before": ["tenant=acme.orders;eu", "\\\\u003d=;"]}'
UNREADABLE = "a run whose lock cannot be read"


@dataclass(frozen=True)
class Shelf:
    """Where documents are kept: each `way` to it is a run's own, `foreign` puts there what dr-ctl has not written,
    which `keeps_out` a run or is not believed; `restart` ends what holds them, and starts it again."""

    way: Callable[[], Store]
    foreign: Callable[[str], None]
    keeps_out: bool
    restart: Callable[[], None] = lambda: None


@pytest.fixture(
    params=["files", MIRROR, CONTINUITY, pytest.param("brokers", marks=[pytest.mark.broker, pytest.mark.deep])]
)
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    if request.param == "files":
        yield files(tmp_path / "documents")
    elif request.param == "brokers":
        yield from locked_error(request.getfixturevalue("labs")(MIRROR, Layout()))
    else:
        with PlayedTwin.up(tmp_path / "twin", topology=request.param) as twin:
            yield from locked_error(twin)


def files(folder: Path) -> Shelf:
    def foreign(number: str) -> None:
        path = folder / "london" / "orders-1" / f"{LOCK}.{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xfe{")

    return Shelf(lambda: FolderStore(folder, "london", "orders-1"), foreign, keeps_out=True)


def locked_error(stage: PlayedTwin | Lab) -> Iterator[Shelf]:
    """London's broker, which others share: what a test leaves there is taken away."""
    installation = load(stage.settings_path)
    with closing(registry.opened(installation, Timeouts(), Path("none"))) as topology:
        ways: list[Store] = []

        def way() -> Store:
            stores = topology.stores()
            ways.extend(stores)
            return next(store for store in stores if store.site == "london")

        def foreign(number: str) -> None:
            stage.admin("london").create_queue(f"dr-ctl.{LOCK}.london.{number}")

        def restart() -> None:
            stage.kill("london")
            stage.start("london")

        yield Shelf(way, foreign, keeps_out=False, restart=restart)
        last = way()
        for number, _ in last.read(LOCK)[1]:
            last.delete(LOCK, number)
        for item in ways:
            item.close()


def test_files_are_for_one_user_alone(tmp_path: Path) -> None:
    files(tmp_path / "documents").way().create(LOCK, 1, "mine")

    assert {path.stat().st_mode & 0o77 for path in tmp_path.rglob("*")} == {0}


def test_of_several_that_create_at_the_same_moment_one_gets_it(shelf: Shelf) -> None:
    """Also while somebody reads: there is a whole document or none."""
    runs = 4
    start, got, snapshot = system().event(), dict[int, bool](), list[str]()

    def create(run: int, store: Store) -> None:
        start.wait()
        got[run] = store.create(LOCK, 1, str(run) * 5_000)

    creating = [in_background(partial(create, run, shelf.way()), f"run {run}") for run in range(runs)]
    reader = shelf.way()
    start.set()
    while not all_ended(creating, 0):
        snapshot += [text for _, text in reader.read(LOCK)[1]]
        system().sleep(0.001)
    snapshot += [text for _, text in reader.read(LOCK)[1]]

    [winner] = [run for run, created in got.items() if created]
    assert len(got) == runs
    assert set(snapshot) == {str(winner) * 5_000}


def test_one_is_created_once_written_anew_read_by_number_and_of_its_kind_alone_and_removed(shelf: Shelf) -> None:
    store, (before_ms, reading) = shelf.way(), shelf.way().read(LOCK)
    # Whether one may be created is said without trying.
    assert (reading, "on this machine" in (store.why_forbidden() or "on this machine")) == ([], True)
    assert [store.create(LOCK, 1, text) for text in ("mine", "yours")] == [True, False]
    assert store.create(LOCK, 12, "stays") is store.create("lockout", 4, "of another kind") is True
    store.update(LOCK, 1, "after")
    with pytest.raises(BrokerError):
        store.update(LOCK, 3, "never written")

    after_ms, reading = shelf.way().read(LOCK)
    assert (reading, 0 < before_ms <= after_ms) == ([(1, "after"), (12, "stays")], True)
    assert shelf.way().read("lockout")[1] == [(4, "of another kind")]
    store.delete("lockout", 4)

    store.delete(LOCK, 1)
    assert shelf.way().read(LOCK)[1] == [(12, "stays")]
    with pytest.raises(BrokerError):
        shelf.way().delete(LOCK, 1)
    assert shelf.way().create(LOCK, 1, "another's") is True


def meant(text: str) -> object:
    """What a text says: how JSON spells a sign makes no difference."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20])
def test_a_text_comes_back_as_it_was_written_and_a_torn_one_is_held_by_somebody(shelf: Shelf, text: str) -> None:
    shelf.way().create(LOCK, 1, "")

    shelf.way().update(LOCK, 1, text)

    [(number, reading)] = shelf.way().read(LOCK)[1]
    assert (number, meant(reading)) == (1, meant(text))
    [lock] = read_locks(shelf.way()).documents
    assert (lock.run, lock.epoch) == (UNREADABLE, 1)


def test_what_is_written_outlives_a_restart_of_what_holds_it(shelf: Shelf) -> None:
    shelf.way().create(LOCK, 1, SPLIT)
    shelf.way().create(LOCK, 2, "{}")
    shelf.way().update(LOCK, 2, SPLIT)

    shelf.restart()

    by_name = {number: json.loads(text) for number, text in shelf.way().read(LOCK)[1]}
    assert by_name == dict.fromkeys((1, 2), json.loads(SPLIT))


def test_what_others_have_put_there_is_no_crash_and_keeps_nobody_out_who_could_not_have_made_it(shelf: Shelf) -> None:
    """A name without a number is nobody's lock, nor is one of more digits than any lock has, nor what a client made."""
    for number in ("x", "7", "2", "9" * 40):
        shelf.foreign(number)
    shelf.way().create(LOCK, 1, "mine")

    look = read_locks(shelf.way())

    assert shelf.way().create(LOCK, 7, "mine") is False
    if shelf.keeps_out:
        assert [document.epoch for document in look.documents][:3] == [1, 2, 7]
        assert look.highest is not None
        assert look.highest.run == UNREADABLE
        assert look.highest.live(look.now_ms)
    else:
        assert [document.epoch for document in look.documents] == [1]
        assert (look.taken, next_epoch([look])) == ({2, 7}, 3)


AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def told(rows: Any) -> list[Row]:
    of_outflows = [row for row in rows if row.kind in OUTFLOW_READING_KINDS]
    return sorted(of_outflows, key=lambda row: (row.site, row.kind, row.name))


@pytest.mark.parametrize("topology", [MIRROR, CONTINUITY, BRIDGES, BROKERSYNC])
def test_a_small_look_says_of_outflows_and_roles_what_a_whole_one_says(twin: PlayedTwin) -> None:
    installation = load(twin.settings_path)
    with closing(registry.opened(installation, Timeouts(), installation.file.parent)) as opened:
        opened.read()
        with twin.load(200) as traffic:
            traffic.wait_for(50)
            twin.cut("london", "hang")
            traffic.wait_for(150)
            traffic.stop()

        whole, small = opened.read(), opened.poll()

    assert small is not None
    assert small.snapshot.roles == whole.roles
    assert told(small.snapshot.rows(AT)) == told(whole.rows(AT))
    assert sum(row.depth or 0 for row in told(whole.rows(AT)) if row.site == "london") > 0
