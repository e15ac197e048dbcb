"""A real Camel route at each site of a twin: it finishes what it has in flight, or the run ends before the fence."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.plan import Goal
from dr_ctl.engine.ports import Done
from dr_ctl.settings.loader import load
from dr_ctl.topologies.workloads.recipe import switch
from dr_ctl.topologies.workloads.sites import WorkloadSites
from dr_ctl_lab.lab.camel import LOG, Camel
from dr_ctl_lab.lab.ports import release_ports, reserve_ports
from dr_ctl_lab.played import PlayedTwin
from tests.broker.driving import until
from tests.conftest import Command
from tests.twin.matrix import OPERATIONS, at_rest, done, edited, serving

pytestmark = [pytest.mark.broker, pytest.mark.deep]

# One exchange after the other: while the route runs, one is in flight.
ROUTES = Path(__file__).with_name("routes.yaml").read_text("utf-8")


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Camel]]:
    """An audit of London's takes longer than anybody waits."""
    folder = tmp_path_factory.mktemp("camel")
    ports = reserve_ports(2, folder)
    with ExitStack() as stack:
        stack.callback(release_ports, folder)
        yield {
            site: stack.enter_context(
                Camel.up(folder / site, ROUTES, port=port, name=f"work-{site}", settings={"audit.ms": ms})
            )
            for site, port, ms in (("london", ports[0], "60000"), ("paris", ports[1], "50"))
        }


@pytest.fixture
def twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: Command) -> Iterator[PlayedTwin]:
    with PlayedTwin.up(tmp_path / "twin") as twin:
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        OPERATIONS["swapover"].before(twin, inside)
        yield twin


def named(twin: PlayedTwin, apps: Mapping[str, Camel], *routes: str) -> None:
    """Name a workload of these routes, and let it run at London alone."""
    with edited(twin) as settings_file:
        for site, part in settings_file["sites"].items():
            route = {"name": "billing", "kind": "camel-route", "jolokia": apps[site].jolokia, "routes": list(routes)}
            part["workloads"] = [{**route, "singleton": True, "timeout": "2s"}]
    with closing(WorkloadSites(load(twin.settings_path), Timeouts())) as sites:
        for site, goal in (("paris", Goal.STOP), ("london", Goal.START)):
            [snapshot] = sites.read_at((site, "billing"))
            for part in snapshot.parts:
                assert isinstance(sites.send(switch(site, sites.workloads[site, "billing"], part, goal), None), Done)


def states(inside: Command) -> dict[str, str]:
    items: list[Any] = inside("status").document["data"]["workloads"]
    return {item["site"]: item["state"] for item in items}


def said(app: Camel, word: str) -> int:
    return (app.folder / LOG).read_text(encoding="utf-8").count(f"{word} ")


def test_what_is_in_flight_is_finished_or_ends_the_run(
    twin: PlayedTwin, apps: Mapping[str, Camel], inside: Command
) -> None:
    named(twin, apps, "billing")
    until(lambda: said(apps["london"], "begun") > said(apps["london"], "ended"))
    local, remote = {"london": "running", "paris": "stopped"}, {"london": "stopped", "paris": "running"}
    assert states(inside) == local

    moved = done(inside("swapover", "--to", "paris", "--yes"))

    assert states(inside) == remote
    assert said(apps["london"], "begun") == said(apps["london"], "ended"), "none was cut"
    assert moved.document["data"]["workloads"][0]["state"] == "stopped"
    done(inside("swapover", "--to", "london", "--yes"))
    assert states(inside) == local

    named(twin, apps, "billing", "audit")
    before = at_rest(twin)
    ended = inside("swapover", "--to", "paris", "--yes")

    assert ended.code == 20, ended.document
    assert "DR-WORK-003" in ended.ids
    assert "were not finished within 2 s" in ended.told
    assert (serving(twin), at_rest(twin), states(inside)) == (("london",), before, local), "nothing is half stopped"
    began = said(apps["london"], "begun")
    until(lambda: said(apps["london"], "begun") > began)
