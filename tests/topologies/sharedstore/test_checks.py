"""Who serves by the lock, how it is looked at, its database's address as a secret, and what speaks against a move."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
import yaml

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.plan import Goal, Spec
from dr_ctl.engine.ports import Move, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.classic import SharedStoreBroker
from dr_ctl.settings.loader import load
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.beans import STOPS
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.common.view import Acceptor, Config, Queue
from dr_ctl.topologies.sharedstore import procedure
from dr_ctl.topologies.sharedstore.reading import is_changing_hands
from dr_ctl.topologies.sharedstore.store import (
    KINDS,
    Database,
    DatabaseKind,
    Dsn,
    FileLock,
    Lag,
    LockSnapshot,
    LockUnreadable,
    RowLock,
    SharedStore,
)
from dr_ctl.topologies.sharedstore.view import BrokerView, StoreConfig, StoreSnapshot, make_snapshot
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import SHARED_STORE
from tests.clocks import FixedClock
from tests.conftest import Command
from tests.topologies import made
from tests.topologies.made import PAIR
from tests.twin.matrix import edited

FRESH = LockSnapshot(True, "london", 8.0, 0.0)
FILE = LockSnapshot(True)
CONFIG = Config(("stomp",), None, None)


def config(site: str, **more: Any) -> StoreConfig:
    options = {"broker": site, "holder": site, "holders": frozenset({"london", "paris"}), "lease_is_row": True}
    return StoreConfig(**options | more)


def queue(name: str, depth: int = 0, **more: Any) -> Queue:
    return made.queue(name, beans.queue("london", name), depth, **{"routing": "queue", **more})


def listener(site: str, *, started: bool = True) -> Acceptor:
    return made.listener("stomp", beans.connector(site, "stomp"), 61613, "STOMP", started=started, opens_at_boot=True)


def broker(site: str = "london", *queues: Queue, closed: bool = False, **more: Any) -> BrokerView:
    """One that answers."""
    document: dict[str, Any] = {
        "version": "5.18.3",
        "start": "ID:vm-1",
        "acceptors": (listener(site, started=not closed),),
        "queues": queues,
        "lock": replace(FRESH, holder=site),
        "runs": True,
    }
    return _view(site, **{**document, **more})


def waiting(site: str = "paris", **more: Any) -> BrokerView:
    """One whose ports refuse."""
    return _view(site, **{"answered": False, "lock": FRESH, **more})


def _view(site: str, **more: Any) -> BrokerView:
    options = {
        "config": CONFIG,
        "store": config(site),
        "version": "",
        "node": site,
        "start": "",
        "now_ms": 1_800_000_000_000,
    }
    return made.view(BrokerView, site, **{**options, **more})


def snapshot(*views: BrokerView | Silent) -> StoreSnapshot:
    return make_snapshot({view.site: {view.pair: view} for view in views})


def with_commands(site: str) -> StoreConfig:
    return config(site, commands=frozenset({Goal.START, Goal.STOP}))


RECIPE = procedure.TOPOLOGY.recipe(Queues(), Drain(), Timeouts())
RAN_OUT = LockSnapshot(False, "london", -3.0, 0.0)
FREE = LockSnapshot(False)
EXAMPLES: Final = Path(__file__).resolve().parents[3] / "examples"


def of_move(here: BrokerView | Silent, there: BrokerView, operation: str = "swapover", **more: bool) -> list[Finding]:
    observed = snapshot(here, there)
    return list(RECIPE.why_not(observed, Move(Spec(operation, "paris"), "london", RECIPE.baseline(observed), **more)))


def refusals(here: BrokerView | Silent, there: BrokerView, operation: str = "swapover") -> dict[str, Finding]:
    return {item.id: item for item in of_move(here, there, operation)}


def found(here: BrokerView | Silent, there: BrokerView, operation: str = "swapover") -> dict[str, Severity]:
    return {id_: refusal.severity for id_, refusal in refusals(here, there, operation).items()}


@pytest.mark.parametrize(
    ("view", "role"),
    [
        (broker(), Role.SERVING),
        (broker(lock=FILE), Role.SERVING),
        (broker(closed=True), Role.STANDBY),
        (broker(lock=replace(FRESH, holder="paris")), Role.SICK),
        (waiting(), Role.STANDBY),
        (waiting(lock=FILE), Role.STANDBY),
        (waiting(lock=FREE), Role.STANDBY),
        (waiting(lock=RAN_OUT), Role.STANDBY),
        (waiting(runs=True), Role.STANDBY),
        (waiting(runs=False), Role.DOWN),
        (waiting("london"), Role.DOWN),
        (waiting("london", lock=RAN_OUT), Role.DOWN),
    ],
    ids=[
        "serves by its row", "serves by its file", "fenced", "another holds it", "waits", "waits for a file",
        "nobody holds it", "a lost one's lease ran out", "its process runs", "its process ended", "died with the lease",
        "died before",
    ],
)  # fmt: skip
def test_the_lock_decides_who_serves(view: BrokerView, role: Role) -> None:
    assert view.role is role


def test_a_name_in_the_lock_that_the_settings_do_not_know_makes_nobody_sick() -> None:
    """The locker has a leaseHolderId: the holder dies, and the other one takes the store, under another such name."""
    london = broker(lock=replace(FRESH, holder="site-a"))
    dead = waiting("london", runs=False, lock=replace(FRESH, holder="site-b"))
    paris = broker("paris", lock=replace(FRESH, holder="site-b"))

    before, after = refusals(london, waiting(runs=True, lock=london.lock)), refusals(dead, paris)

    assert (london.role, paris.role, dead.role) == (Role.SERVING, Role.SERVING, Role.DOWN)
    assert before.keys() == {"DR-STORE-014"}
    assert "the lock names site-a, which is no broker of the settings" in before["DR-STORE-014"].text
    assert "`lease_holder: site-a` to broker orders-1 of site london" in before["DR-STORE-014"].remedy
    assert "end" not in before["DR-STORE-014"].remedy.split()
    assert "of site paris" in after["DR-STORE-014"].remedy


def test_with_the_line_that_is_offered_the_holder_serves() -> None:
    holders = frozenset({"site-a", "paris"})
    named = {
        site: config(site, holder=name, holders=holders) for site, name in (("london", "site-a"), ("paris", "paris"))
    }
    lock = replace(FRESH, holder="site-a")
    waits = waiting(runs=True, lock=lock, store=named["paris"])
    assert found(broker(lock=lock, store=named["london"]), waits) == {}
    assert waits.role is Role.STANDBY


@pytest.mark.parametrize(
    ("accepted", "severity"), [({}, Severity.ERROR), ({"orders.in": 2}, Severity.ERROR), ({"orders.in": 3}, None)]
)
def test_what_the_store_lacks_refuses_a_move_before_its_fence(
    accepted: dict[str, int], severity: Severity | None
) -> None:
    observed = snapshot(broker(in_memory={"orders.in": 3}), waiting(runs=True))
    move = Move(Spec("swapover", "paris", accept_difference=accepted), "london", RECIPE.baseline(observed))

    assert {finding.id: finding.severity for finding in RECIPE.why_not(observed, move)}.get("DR-STORE-008") is severity


def test_a_process_is_to_be_ended_only_where_the_other_site_is_seen_to_serve() -> None:
    london = broker(lock=replace(FRESH, holder="paris"))
    alone = refusals(london, waiting(runs=True, lock=london.lock))["DR-STORE-002"]
    beside = refusals(london, broker("paris"))["DR-STORE-002"]
    assert "end the process" not in alone.remedy
    assert "`lease_holder:`" in alone.remedy
    assert "end the process of its broker" in beside.remedy
    other_holder = broker("paris"), waiting(runs=True, lock=london.lock)
    shown = ["DR-STORE-002" in {finding.id for finding in snapshot(london, other).findings()} for other in other_holder]
    assert shown == [True, False]  # by `status` and `check`


def test_the_refusal_says_which_keys_to_write(tmp_path: Path) -> None:
    refusal = refusals(broker(), waiting())["DR-STORE-007"]
    keys = yaml.safe_load((refusal.remedy or "").split("`")[1])
    document = yaml.safe_load((EXAMPLES / "classic-shared-store.yaml").read_text(encoding="utf-8"))
    document["sites"]["paris"]["brokers"][0] |= keys
    file = tmp_path / "dr-ctl.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert load(file).broker("paris", "orders-1", SharedStoreBroker).process.state == tuple(keys["process"]["state"])


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        (broker(lock=None, unread="no way there"), waiting(runs=True), "DR-STORE-001"),
        (broker(lock=replace(FRESH, holder="paris")), waiting(runs=True), "DR-STORE-002"),
        (broker(lock=FREE), waiting(runs=True), "DR-STORE-003"),
        (broker(), waiting(runs=False), "DR-STORE-004"),
        (broker(lock=replace(FREE, written=False)), waiting(runs=True), "DR-STORE-013"),
        (broker(lock=replace(FRESH, held=False, left_s=-1.0)), waiting(runs=True), "DR-STORE-005"),
        (broker(lock=replace(FRESH, renewed_s=10.0, lasts_s=5.0)), waiting(runs=True), "DR-STORE-005"),
        (broker(store=config("london", keep_alive_s=10.0)), waiting(runs=True), "DR-STORE-005"),
        (broker(denied=frozenset({STOPS})), waiting(runs=True), "DR-POLICY-001"),
    ],
)
def test_what_refuses_a_move(here: BrokerView, there: BrokerView, expected: str) -> None:
    assert found(here, there)[expected] is Severity.ERROR


def test_the_brokers_own_lease_is_judged_and_not_what_the_settings_say() -> None:
    # One that cannot be shown to wait is refused.
    assert found(broker(), waiting()) == {"DR-STORE-007": Severity.ERROR}
    assert found(broker(), waiting(runs=True)) == {}
    said = config("london", keep_alive_s=10.0)
    assert found(broker(store=said, lock=replace(FRESH, renewed_s=2.0, lasts_s=8.0)), waiting(runs=True)) == {}


def test_of_a_run_that_goes_on_who_gave_up_the_store_may_have_ended() -> None:
    ended = waiting("london", runs=False, lock=replace(FRESH, holder="paris"))
    assert [item.id for item in of_move(ended, broker("paris"))] == ["DR-STORE-004"]
    assert of_move(ended, broker("paris"), activation_sent=True) == []


@pytest.mark.parametrize(
    ("view", "may"),
    [
        (waiting(lock=FREE), True),
        (waiting(lock=RAN_OUT, runs=True), True),
        (waiting(lock=FREE, runs=False), False),
        (waiting("london", lock=RAN_OUT), False),
        (waiting(lock=None), False),
        (waiting(), False),
        (broker(lock=FREE), False),
    ],
)
def test_who_waits_for_a_store_that_nobody_holds_may_take_it(view: BrokerView, may: bool) -> None:
    assert view.may_take_store is may


@pytest.mark.parametrize(
    ("here", "there", "may_take_store"),
    [
        (waiting("london", lock=FILE, runs=False), waiting(lock=FILE, runs=True), True),
        (waiting("london", lock=FREE, runs=False), waiting(lock=FREE, runs=True), True),
        (waiting("london", lock=FRESH, runs=False), waiting(lock=FRESH, runs=True), False),
        (broker(lock=FILE), waiting(lock=FILE), False),
        (waiting("london", lock=None), waiting(lock=None), False),
        (Silent(PAIR, "london", TimedOut("frozen")), waiting(lock=FILE), False),
    ],
    ids=["starts", "may take", "its lease lasts", "serves", "not read", "frozen"],
)
def test_a_moment_in_which_a_broker_takes_the_store_is_waited_out(
    here: BrokerView | Silent, there: BrokerView, may_take_store: bool
) -> None:
    assert is_changing_hands(snapshot(here, there)) is may_take_store


def test_a_stop_that_is_denied_to_the_console_is_not_needed_where_the_process_has_a_command() -> None:
    assert found(broker(denied=frozenset({STOPS}), store=with_commands("london")), waiting(runs=True)) == {}


@pytest.mark.parametrize("left_s", [25.0, -4.0])
def test_a_lease_that_no_right_clock_has_written_is_said(left_s: float) -> None:
    wrong = replace(FRESH, left_s=left_s, held=left_s > 0, ahead_s=7.0)
    clock = refusals(broker(lock=wrong), waiting(runs=True))["DR-STORE-006"]
    assert "7.0 s ahead of this machine's" in clock.text


def test_a_failover_beside_one_that_holds_the_store_closed_is_refused() -> None:
    assert found(broker(closed=True), waiting(runs=True), "failover")["DR-STORE-011"] is Severity.ERROR


def test_with_one_store_nothing_is_lost_with_a_site_whatever_it_does() -> None:
    frozen = Silent(PAIR, "london", TimedOut("no answer"))
    assert snapshot(frozen, waiting()).one_store
    assert snapshot(broker("london", queue("orders.in", 5)), waiting()).stake("london")[0].lost == 0


def test_with_a_replica_it_is_what_that_has_not_got() -> None:
    local = broker(store=config("london", replicated=True), lag=Lag(4096, 3))
    unread = replace(local, lag=None)
    assert not snapshot(local, waiting()).one_store
    assert (local.link.to_ship, unread.link.to_ship) == (3, None)
    assert [*local.link.unsettled()] == ["4096 byte(s) to replicate, 3 message(s) among them"]
    assert [*unread.link.unsettled()] == ["the replica's lag was not read"]


def drafted(verb: str, store_snapshot: StoreSnapshot, operation: str = "swapover") -> StepPlan:
    move = Move(Spec(operation, "paris"), "london", RECIPE.baseline(store_snapshot))
    return RECIPE.draft(RunbookStep(verb, "both", 1), store_snapshot, move)


def test_its_process_is_stopped_by_its_own_command_where_there_is_one_and_started_again() -> None:
    both = snapshot(broker(store=with_commands("london")), waiting(runs=True))
    stop, *_, start = drafted("activate", both).calls
    assert (stop.goal, stop.request) == (Goal.HAND_OVER, {"process": "stop"})
    assert (start.site, start.goal, start.phase, start.when) == ("london", Goal.START, "beside", "it has ended")
    assert drafted("activate", both, "failover").calls == (), "of a lost site nothing is asked"


def test_the_wait_lasts_as_long_as_a_lease_can_and_a_broker_needs_to_start() -> None:
    limits = drafted("activate", snapshot(broker(), waiting(runs=True)), "failover").limits
    assert limits == {"within": 2 * 10.0 + Timeouts().store_taken_s}


NOW = datetime(2026, 11, 23, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
HOLDS = (
    "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); "
    "sys.stdin.read()"
)


class Rows(Database):
    """Gives these answers in their order, the last of them again and again, and keeps what it was asked."""

    def __init__(self, *answers: Sequence[Sequence[Any]]) -> None:
        super().__init__(lambda: "postgresql://nowhere")
        self._answers, self.queries = [[tuple(row) for row in rows] for rows in answers], list[str]()

    def rows(self, query: Callable[[DatabaseKind], str]) -> Sequence[tuple[Any, ...]]:
        self.queries.append(query(KINDS["postgresql"]))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@contextmanager
def held(path: Path) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def test_who_has_locked_a_file_is_seen_and_it_stays_theirs(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    lock = FileLock(path)

    free = lock.read()
    with held(path):
        reading = lock.read()
        with path.open("r+") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    again = lock.read()
    with path.open("r+") as file:  # looking has locked nothing
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert (free, reading, again) == (LockSnapshot(False), LockSnapshot(True), LockSnapshot(False))
    assert reading.text == "the store's lock is held"


@pytest.mark.parametrize(
    ("row", "expected", "text"),
    [
        (
            ("london", NOW_MS + 6000, NOW_MS),
            LockSnapshot(True, "london", 6.0, 0.0),
            "london holds the store, its lease",
        ),
        (
            ("london", NOW_MS - 1000, NOW_MS),
            LockSnapshot(False, "london", -1.0, 0.0),
            "the lease of london has run out",
        ),
        ((None, 0, NOW_MS), LockSnapshot(False, None, None, 0.0), "nobody holds the store"),
        ((None, None, NOW_MS), LockSnapshot(False, None, None, 0.0, written=False), "nobody holds the store"),
        (("paris", NOW_MS + 9000, NOW_MS + 4000.0), LockSnapshot(True, "paris", 5.0, 4.0), "paris holds the store"),
    ],
    ids=["held", "run out", "given up", "never leased", "another clock"],
)
def test_a_row_names_its_holder_and_the_end_of_its_lease(row: Sequence[Any], expected: LockSnapshot, text: str) -> None:
    FixedClock(NOW)
    reading = RowLock(Rows([row]), "ACTIVEMQ_LOCK").read()
    assert reading == expected
    assert text in reading.text


def shared(messages: Rows, replica: Rows | None = None) -> SharedStore:
    return SharedStore(cast("Any", SimpleNamespace(messages="ACTIVEMQ_MSGS")), FileLock(Path()), messages, replica)


def test_a_table_without_its_row_tells_nothing_and_topics_are_not_counted() -> None:
    with pytest.raises(LockUnreadable, match="0 rows"):
        RowLock(Rows([]), "ACTIVEMQ_LOCK").read()
    assert shared(Rows([("queue://orders.in", 7), ("topic://news", 3)])).counts() == {"orders.in": 7}


def test_how_often_a_lease_is_renewed_and_how_long_it_lasts_is_seen_in_the_row() -> None:
    looks = [(5000, 10_000), (5000, 10_000), (15_000, 10_000), (45_000, 39_000)]
    rows = Rows(*([("london", NOW_MS + ends_ms, NOW_MS + now_ms)] for ends_ms, now_ms in looks))
    lock = RowLock(rows, "ACTIVEMQ_LOCK")
    first, same, renewed, much_later = (lock.read() for _ in looks)
    assert (first.renewed_s, same.renewed_s, same.lasts_s) == (None, None, None)
    assert (renewed.renewed_s, renewed.lasts_s) == (much_later.renewed_s, much_later.lasts_s) == (10.0, 5.0)


def test_a_replica_is_behind_by_what_was_written_before_it_was_asked() -> None:
    store, behind = Rows([(Decimal(5000),)], [(3,)]), Rows([(Decimal(4000), 17)])
    assert shared(store, behind).lag() == Lag(1000, 3)
    assert store.queries[1].endswith("WHERE id > 17")
    assert shared(Rows([(Decimal(5000),)], [(0,)]), Rows([(Decimal(5200), 20)])).lag() == Lag(0, 0)
    assert shared(Rows([(Decimal(5000),)]), Rows([(None, 20)])).lag() is None


def test_a_database_that_cannot_be_asked_says_why() -> None:
    database = Database(lambda: "postgresql://a:b@127.0.0.1:1/db")
    with pytest.raises(LockUnreadable, match="cannot be reached"):
        database.rows(lambda kind: f"SELECT {kind.now_ms}")


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(LockUnreadable) as raised:
        Database(lambda: "mariadb://a:b@db/activemq").rows(lambda kind: kind.now_ms)
    assert raised.value.remedy == "pip install 'dr-ctl[mariadb]'"


def test_no_driver_is_loaded_for_a_lock_file() -> None:
    code = "import sys, dr_ctl.topologies.sharedstore.procedure; print({'psycopg', 'pymysql'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ, timeout=60
    )
    assert done.stdout.strip() == "set()"


BROKEN = Path(__file__).with_name("broken_addresses.txt").read_text("utf-8").splitlines()
SECRETS = ("S3", "yZ9", "12#", "12?")


@pytest.fixture
def twin(tmp_path: Path, system_of_test: None) -> Any:
    with PlayedTwin.up(tmp_path / "twin", topology=SHARED_STORE) as twin:
        yield twin


def shared_by(twin: PlayedTwin, dsn: str) -> None:
    secret = twin.directory / "dsn"
    secret.write_text(f"{dsn}\n")
    secret.chmod(0o600)
    with edited(twin) as options:
        options["store"] = {"dsn": {"file": str(secret)}}


def test_nothing_of_a_broken_address_is_printed_and_it_is_a_mistake_of_the_settings(
    twin: PlayedTwin, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
    for dsn in BROKEN:
        shared_by(twin, dsn)
        for words in (("status",), ("swapover", "--to", "paris", "--yes"), ("--verbose", "validate", "--to", "paris")):
            ended = inside(*words)
            text = f"{ended.told}{ended.err}"
            assert (ended.code, ended.document["outcome"]) == (2, "usage"), (dsn, words, text)
            assert not [secret for secret in SECRETS if secret in text], (dsn, words, text)


@pytest.mark.parametrize(
    ("dsn", "read"),
    [
        ("postgresql://u:p%40ss%2F@h:5432/n", ("u", "p@ss/", (("h", 5432),), "n")),
        (
            "postgresql://u:a:b@one:1,two/n?target_session_attrs=read-write",
            ("u", "a:b", (("one", 1), ("two", None)), "n"),
        ),
        ("postgres:///n?host=%2Fvar%2Frun", ("", "", (), "n")),
        ("mysql://u@[::1]:3306/n", ("u", "", (("::1", 3306),), "n")),
        ("mariadb://ü:größe@db.example/n?sslrootcert=/etc/ca.pem", ("ü", "größe", (("db.example", None),), "n")),
    ],
)
def test_a_right_address_is_read_as_it_is_meant(dsn: str, read: tuple[Any, ...]) -> None:
    reading = Dsn.read(dsn, tuple(KINDS))
    assert (reading.user, reading.password, reading.hosts, reading.name, reading.text) == (*read, dsn)


def test_a_driver_that_says_the_password_is_not_quoted() -> None:
    dsn = Dsn.read("postgresql://u:p%40ss@h/n", tuple(KINDS))
    assert dsn.without_password("no login with p@ss, given as p%40ss") == "no login with ***, given as ***"
