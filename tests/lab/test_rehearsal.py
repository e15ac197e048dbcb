"""`rehearse --on twin`: the caller's own names and settings, faults from a seed, each variation judged."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dr_ctl_lab import rehearsal
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BROKERSYNC, CONTINUITY, KINDS, MIRROR
from tests.conftest import Command
from tests.timeouts import runbooks
from tests.twin.conftest import prompt

# One of each family with each change, the others at night.
QUICK = (MIRROR, BROKERSYNC)
ALL = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.deep) for kind in KINDS]


pytestmark = pytest.mark.usefixtures("system_of_test")


@pytest.fixture
def installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, system_of_test: None
) -> Iterator[PlayedTwin]:
    topology = getattr(request, "param", MIRROR)
    if topology == CONTINUITY:
        prompt(monkeypatch)
    with PlayedTwin.up(
        tmp_path / "installed", sites=("gent", "brugge"), serving="gent", queues=("a", "b", "c"), topology=topology
    ) as twin:
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        yield twin


@pytest.mark.parametrize("installed", ALL, indirect=True)
def test_each_scene_is_played_on_the_callers_names_and_touches_nothing(installed: PlayedTwin, inside: Command) -> None:
    before = installed.changes()

    ended = inside("rehearse", "--on", "twin", "--variations", str(len(rehearsal.SCENES)), "--quiet")

    data = ended.document["data"]
    assert ended.code == 0, ended.document
    assert data["sites"] == ["gent", "brugge"]
    assert {"a", "b", "c"} <= {*data["queues"]}
    assert {row["scene"] for row in data["variations"]} == {*rehearsal.SCENES}
    assert all("--to brugge" in row["commands"][0]["command"] for row in data["variations"])
    assert json.loads(Path(data["evidence"]).read_text(encoding="utf-8"))["variations"] == data["variations"]
    assert installed.changes() == before


def test_own_runbooks_are_rehearsed_without_their_hooks(installed: PlayedTwin, inside: Command, tmp_path: Path) -> None:
    folder = tmp_path / "carried out"
    document = yaml.safe_load(installed.settings_path.read_text(encoding="utf-8"))
    document["hooks"] = {"tell": {"run": ["touch", str(folder)]}}
    document["runbooks"] = runbooks(tmp_path / "books", "  - probe: target", "  - probe: target\n  - hook: tell")
    installed.settings_path.write_text(yaml.safe_dump(document), encoding="utf-8")

    ended = inside("rehearse", "--on", "twin", "--variations", "1", "--seed", "5", "--quiet")

    assert (ended.code, folder.exists()) == (0, False), ended.document
    assert "hooks are not carried out: tell" in ended.document["data"]["notes"]


def test_a_bad_end_has_its_seed(installed: PlayedTwin, inside: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """And usual queues stand for theirs where no broker answers."""
    for site in installed.sites:
        installed.kill(site)
    waited = inside("rehearse", "--on", "twin", "--variations", "1", "--seed", "18", "--quiet")
    assert (waited.code, "unfence gent" in waited.told) == (0, True), "served once the link had shipped its last"
    monkeypatch.setattr(rehearsal, "BACK_S", 0.0)
    closed = inside("rehearse", "--on", "twin", "--variations", "1", "--seed", "18", "--quiet")
    assert (closed.code, closed.ids) == (11, ["DR-REHEARSE-003"])
    monkeypatch.setattr(rehearsal._Play, "serving", lambda self: list(self._twin.sites))

    ended = inside("rehearse", "--on", "twin", "--variations", "1", "--seed", "5", "--quiet")

    assert ended.code == 11
    assert "no broker told its queues" in ended.document["data"]["notes"][0]
    [finding] = ended.document["findings"]
    assert (finding["id"], "both sites let clients in" in finding["text"]) == ("DR-REHEARSE-003", True)
    assert "--variations 1 --seed 5" in finding["remedy"]
