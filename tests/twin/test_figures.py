"""What the monitor shows to Prometheus: the same series whatever happens, and a number only where one was read."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import generate_latest

from dr_ctl.agents.exposing import Board, registry_of
from dr_ctl.application import monitoring
from dr_ctl.cli.app import run
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BROKERSYNC, MIRROR, SHARED_STORE
from tests.conftest import Command
from tests.monitoring.test_examples import figures_asked_for, figures_of_the_page, promtool
from tests.patience import time_now
from tests.twin.conftest import LATER
from tests.twin.matrix import ACCEPTED, done, edited

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

    monkeypatch.setattr(monitoring, "exposing", kept)
    return board


@pytest.fixture
def shows(twin: PlayedTwin, dr_ctl: Command, board: Board) -> Shows:
    del dr_ctl  # it is for its environment: the passwords

    def look() -> Series:
        words = ["--config", str(twin.settings_path), "monitor", "--for", "1ms", "--metrics", "127.0.0.1:1", "--quiet"]
        assert run(words, time_now()) == 0
        samples = [sample for family in registry_of(board).collect() for sample in family.samples]
        series = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
        assert len(series) == len(samples)
        return series

    return look


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
    debts = sum(shown for (name, _), shown in owed.items() if name == "dr_ctl_debts")
    assert debts == len(dr_ctl("status").document["debts"])
    pair = twin.pairs[0]
    assert value(well, "dr_ctl_broker_answers", site="london", pair=pair) == 1
    answers = value(lost, "dr_ctl_broker_answers", site="london", pair=pair)
    assert math.isnan(answers) if topology == SHARED_STORE else answers == 0
    for name in ("dr_ctl_queue_messages", "dr_ctl_outflow_messages", "dr_ctl_link_attached"):
        assert math.isnan(value(lost, name, site="london", pair=pair)), name


def test_a_rehearsal_and_an_objective_are_shown(twin: PlayedTwin, dr_ctl: Command, shows: Shows) -> None:
    with edited(twin) as told:
        told["objectives"] = {"recovery": "30s", "loss": {"messages": 250}}
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
    assert figures_of_the_page() == names
    if topology == BROKERSYNC:
        assert value(shown, "dr_ctl_agent_healthy") == 0  # it is not there
