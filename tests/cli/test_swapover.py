"""What a scenario cannot say of a move: files, locks, torn journals; of a lost site: clocks, its price; commands
that hear its end."""

import errno
import fcntl
import json
import os
import pkgutil
import re
import signal
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from dr_ctl.application.automation import reinstatable
from dr_ctl.application.loss_bound import LossBound
from dr_ctl.cli.options import moment
from dr_ctl.core.errors import Unreachable
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.debts import DebtKind
from dr_ctl.rpo.history import row
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.loader import load
from dr_ctl.topologies.common.calls import debt_name
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.mirror.view import BrokerView
from tests.cli.conftest import ACCEPTED, Ended, Shell, begun, failover, swapover
from tests.cli.sites import Sites
from tests.clocks import FixedClock
from tests.report.scribe import NAME
from tests.rpo.fifo import at
from tests.rpo.files import write
from tests.rpo.test_bounds import STEADY, came
from tests.timeouts import runbooks
from tests.topologies.mirror.views import PAIR, at_both, broker, snapshot
from tests.twin.subject import until


@pytest.mark.parametrize(
    "told",
    [{"orders.in": (1, True), "orders.audit": (-1, True)}, {"orders.in": (0, True)}],
    ids=["one below zero beside one that is held", "one that is not named"],
)
def test_what_clients_hold_is_not_told_by_a_sum(
    dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]
) -> None:
    before = sites.settable
    monkeypatch.setattr("dr_ctl.topologies.artemis.reading.dispatch", lambda reader, view: told)
    sites.settings(runbooks=runbooks(dr_ctl.folder / "runbooks", "within: 5s", "within: 200ms"))

    ended = swapover(dr_ctl, "--yes")

    assert (ended.code, "DR-QUEUE-003" in ended.ids) == (20, True), ended.document
    assert sites.settable == before


def test_a_run_that_lives_is_under_way_and_keeps_others_out(dr_ctl: Shell, sites: Sites) -> None:
    begun(dr_ctl, sites, "quiesce", "fence")
    holder = {"what": "swapover to paris", "pid": 4711, "host": "ops-1", "since": "02:00"}
    with (
        (dr_ctl.state / "runs" / NAME / "journal.jsonl").open("ab") as journal,
        (dr_ctl.state / "lock").open("w") as lock,
    ):
        fcntl.flock(journal, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX)
        json.dump(holder, lock)
        lock.flush()
        status, moved = dr_ctl("status", "--json"), swapover(dr_ctl, "--yes")

    by_name = {finding["id"]: finding for finding in status.document["findings"]}
    assert (status.code, status.document["data"]["open_run"], by_name["DR-RUN-003"]["severity"]) == (0, NAME, "info")
    assert f"{NAME} is under way" in by_name["DR-RUN-003"]["text"]
    assert all("dr-ctl resume" not in finding["remedy"] for finding in by_name.values())
    assert (moved.code, moved.document["outcome"], sites.changes) == (13, "locked", [])
    assert "swapover to paris (process 4711 on ops-1, since 02:00)" in moved.document["summary"]


def test_a_receipt_that_cannot_be_read_fits_nothing(dr_ctl: Shell, sites: Sites) -> None:
    for words in (("fence", "london"), ("drain", "--to", "paris")):
        assert dr_ctl(*words, "--yes").code == 0
    receipt = sites.paris.broker.queues["dr-ctl.receipt.paris"]
    assert receipt.user is not None
    receipt.user = receipt.user[:-20]

    assert dr_ctl("activate", "paris", "--yes", "--json").ids[0] == "DR-RECEIPT-001"


def test_a_journal_that_cannot_be_written_behind_the_fence_says_who_may_be_locked_out(
    dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fdatasync

    def failing(file: int) -> None:
        if not sites.london.open:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing)
        ended = swapover(dr_ctl, "--yes")

    assert (ended.code, ended.ids) == (1, ["DR-RUN-002"])
    assert ended.document["run"] in ended.document["summary"]
    assert "clients may be locked out of both sites" in ended.document["summary"]
    assert "`dr-ctl resume` or `dr-ctl abort`" in ended.document["findings"][0]["remedy"]
    assert not sites.london.open
    assert dr_ctl("abort", "--yes").code == 0
    assert sites.london.open


@pytest.mark.parametrize(
    "where", ["dr_ctl.report.html.write_report", "dr_ctl.engine.holding.Lease.release", "dr_ctl.cli.output._write"]
)
def test_signals_after_the_end_of_a_run_hide_no_end(
    dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    real, struck = pkgutil.resolve_name(where), list[None]()

    def strike(*arguments: Any) -> Any:
        struck.extend(signal.raise_signal(number) for number in (signal.SIGINT, signal.SIGTERM))
        return real(*arguments)

    monkeypatch.setattr(where, strike)
    ended = swapover(dr_ctl, "--yes")
    assert (ended.code, ended.document["run"] is not None, len(struck), sites.paris.open) == (0, True, 2, True)


def test_the_lock_keeps_the_end_of_the_journal_and_the_journal_the_lock(dr_ctl: Shell, sites: Sites) -> None:
    ended = swapover(dr_ctl, "--yes")

    folder = dr_ctl.state / "runs" / ended.document["run"]
    sealed = json.loads((folder / "result.json").read_text("utf-8"))["journal"]
    for site in sites.both:
        kept = site.document(f"dr-ctl.lock.{site.name}.1") or {}
        assert (kept["run"], kept["released"]) == (ended.document["run"], True)
        assert {name: kept[name] for name in sealed} == sealed
    sites.paris.queue("dr-ctl.lock.paris.4", address="dr-ctl.lock.paris", internal=True, user="of another")
    broken = swapover(dr_ctl, "--yes", "--break-lock", "--reason", "that host burnt down", to="london")
    assert broken.code == 0, broken.document
    for run, reason in ((ended.document["run"], None), (broken.document["run"], "that host burnt down")):
        entries = dr_ctl.journal(run)[0]["evidence"]["by"]["lock"]
        assert (entries["at"], entries["reason"]) == (["london/orders-1", "paris/orders-1"], reason)


DOUBLES = ("--accept-duplicates", "1000000")
PRESUMED = ("--presume-down", "london", "--reason", "so")


def test_a_link_that_never_mirrored_can_be_lost(dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    sites.lose()
    monkeypatch.setattr(BrokerView, "outflow", property(lambda _: None))

    ready = dr_ctl("validate", "--for", "failover", "--json")
    ended = failover(dr_ctl, "--yes", *ACCEPTED)

    assert "refused without --accept-loss unknown --accept-duplicates unknown: an unknown" in ready.document["summary"]
    assert (ready.code, ended.code, sites.paris.open) == (10, 0, True), ended.document


@pytest.mark.wire
def test_a_listener_of_a_lost_site_that_the_survivor_knows_of_is_a_sign_of_life(dr_ctl: Shell, sites: Sites) -> None:
    """Neither the console of London nor the address where a client is greeted answers."""
    sites.lose()
    logged_in = "stomp://{}:{}".format(*sites.paris.host.stomp)
    with socket.create_server(("127.0.0.1", 0)) as another, socket.create_server(("127.0.0.1", 0)) as refusing:
        # At London's host something takes connections where the client acceptor of Paris has its port.
        sites.paris.broker.acceptors["clients"].port = another.getsockname()[1]
        sites.logged_in(london=f"stomp://localhost:{refusing.getsockname()[1]}", paris=logged_in)
        refusing.close()

        ended = failover(dr_ctl, "--yes", *ACCEPTED)

    assert (ended.code, ended.ids[0], sites.changes) == (10, "DR-ALIVE-002", []), ended.document
    assert "connections are taken at localhost:" in ended.document["summary"]
    assert failover(dr_ctl, "--dry-run", *ACCEPTED).code == 0


@pytest.mark.wire
def test_a_site_that_is_back_before_the_listeners_open_is_seen_whatever_was_spent(
    dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = runbooks(dr_ctl.folder / "runbooks", "lost: 5s", "lost: 50ms")
    named, items = threading.Event(), socket.getaddrinfo

    def resolve(host: Any, *more: Any, **others: Any) -> Any:
        if host == "london.test":
            named.wait()
        return items("127.0.0.1" if host == "london.test" else host, *more, **others)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    sites.settings(london=sites.london.url.replace("127.0.0.1", "london.test"), runbooks=books)
    sites.paris.before_change = lambda _: named.set()
    for site in ("london", "paris"):
        sites.twin.cut(site)
    until(lambda: not (sites.london.broker.attached or sites.paris.broker.attached))

    ended = failover(dr_ctl, "--yes", *ACCEPTED, *PRESUMED)

    assert ended.code == 20, ended.document
    assert "london is open: a second site is never opened" in ended.document["summary"]
    assert (sites.london.open, sites.paris.open) == (True, False)


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_what_a_lost_site_brought_is_counted_by_its_identity_or_not_at_all(
    dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch, is_looked_at: bool
) -> None:
    sites.lose()
    assert failover(dr_ctl, "--yes", *ACCEPTED).code == 0
    sites.come_back()
    if not is_looked_at:
        monkeypatch.setattr("dr_ctl.topologies.mirror.procedure.ORIGINS_UP_TO", 0)

    run = dr_ctl("reinstate", "london", "--yes", "--json").document["run"]

    by_name = {entry["step"]: entry["evidence"] for entry in dr_ctl.journal(run) if entry["outcome"] == "succeeded"}
    if not is_looked_at:
        assert by_name["05-reconcile"]["recovered"] is None
        assert "not browsed: orders.in" in by_name["05-reconcile"]["text"]
        return
    # A broker that starts tells its peer each address and each queue again: they are no acknowledgements.
    assert (by_name["03-residue"]["messages"], by_name["03-residue"]["acknowledgements"]) == (2, 1)
    reconciled = by_name["05-reconcile"]
    assert (reconciled["recovered"], reconciled["ids"]) == (2, {"orders.in": sites.lost_ids})
    assert (reconciled["acknowledgements_without_message"], reconciled["left_over"]) == (0, [])


@pytest.fixture
def since(dr_ctl: Shell, sites: Sites) -> datetime:
    """Looks at ten messages a second, the last one ten minutes ago, with seven to ship; then silence."""
    last = system().now().replace(microsecond=0) - timedelta(minutes=10)
    rows = []
    for second, depth, added in ((-10, 0, 0), (-5, 3, 50), (0, 7, 100)):
        at = last + timedelta(seconds=second)
        rows.append(Row(site="london", ts=at, pair="orders-1", kind="site", name="serving", took_ms=0))
        counted = {"depth": depth, "delivering": 0, "added": added, "removed": added - depth}
        rows.append(Row(site="london", ts=at, pair="orders-1", kind="mixed", name="*", start="1", **counted))
    write(rows, dr_ctl.folder / "history")
    sites.lose(shown=False)
    return last


SURE = ("--presume-down", "london", "--reason", "power was cut")


def test_a_word_on_its_end_makes_the_bound_finite_and_stands_in_the_journal(dr_ctl: Shell, since: datetime) -> None:
    """Nobody saw the site down, and somebody knows when its service ended."""
    word = (since + timedelta(seconds=3)).isoformat()

    status = dr_ctl("status", "--json")
    refused = failover(dr_ctl, "--yes", "--accept-loss", "107", *DOUBLES, *SURE)
    served = failover(dr_ctl, "--yes", "--accept-loss", "107", *DOUBLES, *SURE, "--silent-since", word)

    [remedy] = [item["remedy"] for item in status.document["findings"] if item["id"] == "DR-ROLE-005"]
    assert re.search(r"It is refused without .*--accept-loss \d+.*likely \d+, at most \d+", remedy)
    assert refused.code == 11
    [finding] = [item for item in refused.document["findings"] if item["id"] == "DR-LOSS-001"]
    assert "= 7 neither shipped nor consumed at the reading of" in finding["text"]
    assert "above what was accepted. The owner of that limit decides" in finding["remedy"]
    assert "--silent-since T --reason TEXT" in finding["remedy"]
    quoted, until = re.findall(r"--accept-loss (\d+) \(good until ([^)]+)\)", finding["remedy"])[0]
    assert int(quoted) > refused.document["data"]["bounds"]["lost"]["at_most"] + 10 * 300
    assert datetime.fromisoformat(until) > system().now() + timedelta(minutes=4)
    ended_by = re.findall(r"With 107 accepted london must have ended by (\S+):", finding["remedy"])[0]
    assert since + timedelta(seconds=4.8) <= datetime.fromisoformat(ended_by) <= since + timedelta(seconds=5)
    bounds = served.document["data"]["bounds"]
    assert (served.code, bounds["lost"]["at_most"]) == (0, 107)
    assert bounds["because"].startswith("likely 9, at most 107, because 107 = 7 neither shipped")
    assert re.search(r"without that statement at most \d{4,}$", bounds["because"])
    plan = json.loads((dr_ctl.state / "runs" / served.document["run"] / "plan.json").read_text("utf-8"))
    assert plan["ask"]["silent_since"] == stamp(since + timedelta(seconds=3))


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_moment_before_a_look_that_saw_the_site_serve_is_refused_with_both(
    dr_ctl: Shell, since: datetime, sites: Sites, dry: tuple[str, ...]
) -> None:
    word = since - timedelta(seconds=1)

    ended = failover(dr_ctl, "--yes", *dry, *SURE, *ACCEPTED, "--silent-since", word.isoformat())

    assert (ended.code, ended.ids[0], sites.changes) == (10, "DR-LOSS-004", [])
    assert f"was seen to serve at {stamp(since)}, 1.00 s after --silent-since says" in ended.document["summary"]


def test_a_clock_behind_shrinks_no_bound(dr_ctl: Shell, since: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    now = type(system()).now
    monkeypatch.setattr(type(system()), "now", lambda machine: now(machine) - timedelta(seconds=50))
    enough = ("--yes", "--accept-loss", "100000", *DOUBLES, *SURE)

    refused = failover(dr_ctl, "--yes", *ACCEPTED, "--dry-run", *SURE)
    ended = failover(dr_ctl, *enough, "--dry-run")

    passed_s = 50 + int((system().now() - since).total_seconds())
    assert ended.code == 0, ended.document
    assert ended.document["data"]["bounds"]["lost"]["at_most"] >= 7 + 10 * (passed_s - 5)
    assert refused.code == 11  # what is known is not accepted as unknown
    assert "does not cover a known figure" in refused.document["findings"][0]["remedy"]
    assert "DR-LOSS-003" in failover(dr_ctl, *enough).ids


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("09:15", "2026-11-21T09:15:00.000Z"),
        ("09:15:30Z", "2026-11-21T09:15:30.000Z"),
        ("12:30", "2026-11-20T12:30:00.000Z"),  # of the day before: today that is still to come
        ("09:15+02:00", "2026-11-21T07:15:00.000Z"),
        ("2026-11-21T09:15", "2026-11-21T09:15:00.000Z"),
        ("2026-11-21 09:15:30 UTC", "2026-11-21T09:15:30.000Z"),  # as texts show it
        ("10m", "2026-11-21T11:50:00.000Z"),
    ],
)
def test_a_moment_is_typed_as_a_clock_shows_it_and_is_utc(given: str, means: str) -> None:
    FixedClock(datetime(2026, 11, 21, 12, tzinfo=UTC))

    assert stamp(moment("--silent-since", given)) == means


def owing(site: str, *, epoch: int, serving: bool = True, lost_site: str | None = None) -> BrokerView:
    lost_site = lost_site or ("london" if site == "paris" else None)
    kept = {debt_name(DebtKind.FENCE, lost_site, site): "{}"} if lost_site else {}
    view = broker(site, serving=serving)
    return replace(view, documents={**kept, f"dr-ctl.lock.{site}.{epoch}": "{}"})


@pytest.mark.parametrize(
    ("london", "paris", "sites_to_pay"),
    [
        (owing("london", epoch=3, serving=False), owing("paris", epoch=4), ("london",)),
        (owing("london", epoch=4, serving=True), owing("paris", epoch=4), ("london",)),
        (owing("london", epoch=5, serving=False), owing("paris", epoch=4), ()),
        (owing("london", epoch=3, serving=False), owing("paris", epoch=4, serving=False), ()),
        (owing("london", epoch=5, lost_site="paris"), owing("paris", epoch=6), ()),
    ],
    ids=["closed", "open", "an older epoch", "nobody serves", "lost in turn"],
)
def test_what_nobody_need_decide_is_reinstatable(
    london: BrokerView, paris: BrokerView, sites_to_pay: tuple[str, ...]
) -> None:
    assert reinstatable(snapshot(london, paris)) == sites_to_pay


PARIS = at_both("orders.in", depth=4)[1]
REFUSED = Silent(PAIR, "london", Unreachable("refused", refused=True), ports_refuse=True)
AWAY = Silent(PAIR, "london", Unreachable("no route", refused=False))


def test_a_site_that_was_down_and_is_unseen_may_have_lived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Shell(tmp_path, capsys).settings()
    began = row.moment(PARIS.now_ms * 1000)
    write([replace(item, ts=began + (item.ts - at(0))) for item in STEADY], tmp_path / "history")
    clock = FixedClock(began)
    topology = SimpleNamespace(recipe=SimpleNamespace(moves_parts=True))
    opened: Any = SimpleNamespace(installation=load(path), topology=topology, runs=None)
    exposure = LossBound(opened, "london", None)
    items = []
    for second, view in ((12, REFUSED), (14, REFUSED), (16, AWAY), (18, REFUSED)):
        clock.moment = began + timedelta(seconds=second)
        exposure.saw(snapshot(view, PARIS))
        items.append(exposure.bounds()["lost"]["at_most"])  # type: ignore[call-overload, index]

    assert items == [7 + came(2), 7 + came(2), 7 + came(6), 7 + came(8)]


ALL = ["ok", "reverted", "incomplete", "stranded", "unknown", "interrupted", "drain_timeout", "debt"]
EXAMPLE = {"run": [str(Path(__file__).parents[2] / "examples" / "tell.sh")], "on": ["ok"], "timeout": "15s"}


def script(folder: Path, text: str = "touch told", name: str = "tell.sh") -> dict[str, Any]:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o700)
    return {"run": [f"./{name}"], "on": ALL}


def warned(ended: Ended) -> list[str]:
    return [finding["text"] for finding in ended.document["findings"] if finding["id"] == "DR-HOOK-002"]


class Webhook(BaseHTTPRequestHandler):
    posted: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def test_who_is_told_gets_variables_and_document(dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 'env | grep ^DR_CTL_ > told.env; flock -n "$DR_CTL_STATE_DIR/lock" touch was-free'
    dr_ctl.add(after=[script(dr_ctl.folder, free), EXAMPLE])
    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("TELL_URL", f"http://127.0.0.1:{server.server_port}/runs")

        ended = swapover(dr_ctl, "--yes")

        server.shutdown()
    assert (ended.code, warned(ended)) == (0, [])
    assert Webhook.posted == [ended.document]
    assert (dr_ctl.folder / "was-free").exists(), "the lock is free by then"
    lines = (dr_ctl.folder / "told.env").read_text(encoding="utf-8").splitlines()
    variables = dict(line.removeprefix("DR_CTL_").split("=", 1) for line in lines)
    options = {"RUN": ended.document["run"], "INSTALLATION": "orders", "STATE_DIR": str(dr_ctl.state)}
    assert {**variables, **options} == variables
    assert "TEST_PASSWORD" not in variables
    monkeypatch.delenv("TELL_URL")
    [text] = warned(swapover(dr_ctl, "--yes", to="london"))
    assert text.endswith("TELL_URL: is not set: nobody was told")


def test_ctrl_c_ends_the_telling_and_not_the_result(dr_ctl: Shell, sites: Sites) -> None:
    slow = script(dr_ctl.folder, f"echo $$ > pid; kill -INT {os.getpid()}; sleep 60", "slow.sh")
    dr_ctl.add(after=[slow, script(dr_ctl.folder)])

    ended = swapover(dr_ctl, "--yes")

    assert (ended.code, ended.document["outcome"], (dr_ctl.folder / "told").exists()) == (0, "ok", False)
    [text] = warned(ended)
    assert text.endswith("before these were informed how the run ended: ./slow.sh, ./tell.sh")
    with pytest.raises(ProcessLookupError):
        os.kill(int((dr_ctl.folder / "pid").read_text()), 0)
