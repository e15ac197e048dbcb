"""What a night is like: something is broken, the first screen is read, what it names is typed, and it ends well; and
the figures on it: a lost site has one loss bound before and after, and what the monitor shows to Prometheus is one set
of series whatever happens, and a number only where one was read."""

import itertools
import math
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from dr_ctl.agents.exposing import Board, registry_of
from dr_ctl.application import monitoring
from dr_ctl.cli.app import run
from dr_ctl.core.system import system
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.record import Record
from dr_ctl.rpo.history.row import Row
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BROKERSYNC, MIRROR, SHARED_STORE
from dr_ctl_lab.twin.site import PAIR
from tests.conftest import Command
from tests.documents import no_none
from tests.monitoring.test_examples import figures_asked_for, figures_of_the_page, promtool
from tests.rpo.files import write
from tests.timeouts import impatient, time_now
from tests.twin.conftest import LATER
from tests.twin.matrix import ACCEPTED, done, edited, serving
from tests.twin.subject import Subject, until

README = Path(__file__).parents[2] / "README.md"
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Screen:
    """What a person reads after a command."""

    code: int
    out: str
    err: str

    def remedy(self, id_: str) -> str:
        """What is to be done about a finding, under all that it says."""
        lines = self.out.splitlines()
        [at] = [number for number, line in enumerate(lines) if f" {id_}  " in line]
        under = itertools.takewhile(lambda line: line.startswith("      "), lines[at + 1 :])
        return next(line for line in under if line.startswith("      -> "))


Person = Callable[[str], Screen]


@pytest.fixture
def types(dr_ctl: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Person:
    """Somebody at a terminal who knows `--help` and nothing else."""
    del dr_ctl  # it has set the scene
    monkeypatch.setenv("NO_COLOR", "1")
    impatient(monkeypatch, rates_s=0.05)

    def typed(words: str) -> Screen:
        capsys.readouterr()
        code = run(shlex.split(words), time_now())
        output = capsys.readouterr()
        no_none(output.out + output.err)
        return Screen(code, output.out, output.err)

    return typed


def recorded(twin: PlayedTwin, role: str, *, ago_s: float) -> datetime:
    """A minute of looks at London, ten messages a second, the last so long ago; gives the moment of the last."""
    last = system().now() - timedelta(seconds=ago_s)
    rows = []
    for number in range(13):
        at, added = last - timedelta(seconds=5 * (12 - number)), 50 * number
        more: dict[str, Any] = {"ts": at, "pair": PAIR, "delivering": 0, "start": "1", "depth": 0}
        rows.append(Row(site="london", ts=at, kind="site", name=role))
        rows.append(Row(site="london", kind="mixed", name="*", added=added, removed=added, link=True, **more))
        for queue in ("orders.in", "orders.out"):
            held = {"added": added // 2, "removed": added // 2, "acked": added // 2}
            rows.append(Row(site="london", kind="queue", name=queue, **held, **more))
    write(rows, twin.settings_path.parent / "history")
    return last


def test_what_was_sick_a_moment_ago_is_refused_as_sick_and_a_word_on_it_is_told_back(
    twin: PlayedTwin, types: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = recorded(twin, "sick", ago_s=10)
    settings, port = Path(twin.settings_path), twin.host("london").broker.console_port
    away = settings.with_name("away.yaml")  # what stands there is no management: nothing is known of the site
    away.write_text(settings.read_text(encoding="utf-8").replace(f":{port}/console/jolokia", f":{port}/"), "utf-8")
    monkeypatch.setenv("DR_CTL_CONFIG", str(away))
    twin.cut()
    until(lambda: not any(twin.host(site).broker.attached for site in twin.sites))

    asked = types("failover --to paris --dry-run")
    powered_off = "--presume-down london --reason 'powered off' --accept-loss 5000 --accept-duplicates 100000"
    ended = types(f"failover --to paris --yes {powered_off}")

    assert asked.code == 12
    assert f"; it was sick, and so alive, at {last:%Y-%m-%d %H:%M:%S} UTC" in asked.out
    assert "End that process for certain, or cut its host off; only then add" in asked.remedy("DR-ALIVE-002")
    assert (ended.code, serving(twin)[-1]) == (0, "paris")
    assert f"alive, at {last:%Y-%m-%d %H:%M:%S} UTC: only --presume-down says that it serves nobody now" in ended.out


def test_each_line_of_the_picture_in_the_readme_is_printed_in_that_order(twin: PlayedTwin, types: Person) -> None:
    """Whatever the figures, and the space that sets lines apart."""
    shown = README.read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    commands = [part.splitlines() for part in shown.split("$ dr-ctl ")[1:]]

    def plain(line: str) -> str:
        return NUMBER.sub("N", line).strip()

    assert len(commands) == 3
    for words, *lines in commands:
        ended = types(words)
        printed = iter([plain(line) for line in (ended.err + ended.out).splitlines()])

        assert ended.code == 0, words
        assert [line for line in map(plain, lines) if line and line not in printed] == [], words


def test_a_lost_site_has_one_price_before_and_after(twin: PlayedTwin, types: Person) -> None:
    recorded(twin, "serving", ago_s=90)
    twin.kill("london")
    accepting = "--accept-loss 2000 --accept-duplicates 100000"
    exposure = (
        r"likely \d+, at most 1[01]\d\d message\(s\) may be lost, the oldest of them up to 1 min 3\d s old; "
        r"likely \d+, at most 1[01]\d\d duplicate"
    )

    refused = types("failover --to paris --yes")
    screens = [
        types(f"{words} {accepting}")
        for words in ("failover --to paris --dry-run", "plan failover --to paris", "failover --to paris --yes")
    ]

    assert refused.code == 11
    assert re.search(r"DR-LOSS-001  up to 1[01]\d\d message\(s\) may be lost, the objectives allow 0; ", refused.out)
    for screen in screens:
        assert (screen.code, len(re.findall(exposure, screen.out))) == (0, 1), screen.out


def test_a_loss_has_one_bound_wherever_it_is_asked_and_none_below_what_a_command_read(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """No monitor runs any more when five messages come that the link does not ship, and then the site dies. Another
    five may have come after the reading."""
    done(dr_ctl("monitor", "--for", "12s"))
    twin.cut()
    Subject(twin).put("london", "orders.in", 5)
    move = ("failover", "--to", "paris")

    asked = [dr_ctl(*words) for words in (("status",), ("check",), ("plan", *move, "--as-if-lost", "london"))]
    verdict = dr_ctl("validate").document["data"]["operations"]["failover"]["verdict"]
    twin.kill("london")
    asked += [dr_ctl("check"), dr_ctl(*move, "--dry-run"), done(dr_ctl(*move, "--yes", "--accept-loss", "10"))]

    bounds = [ended.document["data"]["bounds"]["lost"] for ended in asked]
    assert [(lost["likely"], lost["at_most"]) for lost in bounds] == [(5, 10)] * len(asked)
    assert "if london is lost: refused without --accept-loss 10: likely 5, at most 10 message(s) may be lost" in verdict
    assert [ended.code for ended in asked] == [0, 1, 0, 2, 11, 0]


Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
Shows = Callable[[], Series]


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    """What the monitor shows last, kept beyond its end."""
    board = Board()

    @contextmanager
    def kept(address: str | None) -> Iterator[Board]:
        del address
        yield board

    monkeypatch.setattr(monitoring.exposing, "exposing", kept)
    return board


@pytest.fixture
def shows(twin: PlayedTwin, dr_ctl: Command, board: Board) -> Shows:
    del dr_ctl  # it is for its environment: the passwords

    def read() -> Series:
        words = ["--config", str(twin.settings_path), "monitor", "--for", "1ms", "--metrics", "127.0.0.1:1", "--quiet"]
        assert run(words, time_now()) == 0
        samples = [sample for family in registry_of(board).collect() for sample in family.samples]
        series = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
        assert len(series) == len(samples)
        return series

    return read


def value(series: Series, name: str, **labels: str) -> float:
    return series[name, tuple(sorted(labels.items()))]


@LATER
def test_no_series_comes_or_goes_whatever_becomes_of_the_sites(
    twin: PlayedTwin, dr_ctl: Command, shows: Shows, topology: str
) -> None:
    well = shows()
    twin.kill("london")
    lost = shows()
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    owed = shows()

    assert well.keys() == lost.keys() == owed.keys()
    assert value(well, "dr_ctl_site_role", site="london", role="serving") == 1
    assert value(lost, "dr_ctl_site_role", site="london", role="serving") == 0
    assert value(owed, "dr_ctl_site_role", site="paris", role="serving") == 1
    if topology != SHARED_STORE:  # there the other broker has taken the store by itself, and no run was needed
        assert value(owed, "dr_ctl_last_run_exit_code", operation="failover") == 0
    assert math.isnan(value(owed, "dr_ctl_last_run_exit_code", operation="swapover"))
    assert math.isnan(value(owed, "dr_ctl_last_run_exit_code", operation="quarantine"))
    served = Record("", "ok", "", FAILOVER, target="paris", served_before=("paris",))
    assert [monitoring.shown_as(case) for case in (served, replace(served, served_before=()))] == [
        "quarantine",
        FAILOVER,
    ]
    debts = sum(shown for (name, _), shown in owed.items() if name == "dr_ctl_debts")
    assert debts == len(dr_ctl("status").document["debts"])
    pair = twin.pairs[0]
    assert value(well, "dr_ctl_broker_answers", site="london", pair=pair) == 1
    answers = value(lost, "dr_ctl_broker_answers", site="london", pair=pair)
    assert math.isnan(answers) if topology == SHARED_STORE else answers == 0
    for name in ("dr_ctl_queue_messages", "dr_ctl_outflow_messages", "dr_ctl_link_attached"):
        assert math.isnan(value(lost, name, site="london", pair=pair)), name


def test_a_rehearsal_and_an_objective_are_shown(twin: PlayedTwin, dr_ctl: Command, shows: Shows) -> None:
    with edited(twin) as options:
        options["objectives"] = {"recovery": "30s", "loss": {"messages": 250}}
    assert dr_ctl("rehearse", "--yes").code == 0

    shown = shows()

    assert value(shown, "dr_ctl_objective_loss_messages") == 250
    assert value(shown, "dr_ctl_objective_recovery_seconds") == 30
    assert math.isnan(value(shown, "dr_ctl_objective_duplicate_messages"))
    assert value(shown, "dr_ctl_rehearsal_timestamp_seconds") > 0
    assert value(shown, "dr_ctl_last_run_exit_code", operation="rehearse") == 0


@pytest.mark.parametrize("topology", [MIRROR, BROKERSYNC])
def test_names_and_units_are_as_prometheus_wants_them_and_alerts_dashboard_and_page_know_them(
    shows: Shows, board: Board, topology: str
) -> None:
    shown = shows()
    names = {name for name, _ in shown}

    checked = promtool("check", "metrics", input=generate_latest(registry_of(board)))

    assert checked == "", checked
    assert topology != MIRROR or figures_asked_for() <= names
    of_groups = {
        f"dr_ctl_{name}" for name in ("takeovers_total", "last_takeover_seconds", "last_takeover_timestamp_seconds")
    }
    assert figures_of_the_page() - of_groups == names
    if topology == BROKERSYNC:
        assert value(shown, "dr_ctl_agent_healthy") == 0  # it is not there
