"""Kinds of labs: registered by one line, loaded when named, each with options of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl_lab.lab.kinds import KINDS, MIRROR
from dr_ctl_lab.lab.lab import Lab


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(KINDS.modules, "folders", "tests.lab.registered")
    monkeypatch.setenv("DR_CTL_CACHE", str(tmp_path / "cache"))
    return "folders"


def test_a_kind_that_is_registered_makes_labs(tmp_path: Path, folders: str) -> None:
    with Lab.up(tmp_path / "lab", topology=folders, options={"color": "blue"}, edit=str.upper) as lab:
        london = lab.instance("london")
        status = lab.status()
        told = yaml.safe_load(lab.settings_path.read_text())
        processes = lab.processes()
        lab.close_clients("london")
        lab.kill("paris")

        assert (london / "made").read_text() == "BLUE ORDERS.IN,ORDERS.OUT TO PARIS"
        assert sorted(path.name for path in london.glob("*.queue")) == ["orders.in.queue", "orders.out.queue"]
        assert not lab.admin("london").clients_open()
        assert lab.pid("paris") is None
        assert sorted(lab.site("paris").ports) == ["clients", "copies"]

    assert [(site.name, site.running, site.clients_open) for site in status.sites] == [
        ("london", True, True),
        ("paris", True, False),
    ]
    assert [(link.source, link.connected) for link in status.links] == [("london", True), ("paris", True)]
    assert told["topology"] == "folders"
    assert told["sites"]["paris"]["brokers"][0]["secret"] == "secrets/paris"
    assert len(processes) == 4
    assert not any(process.alive() for process in processes)
    assert not (tmp_path / "lab").exists()


def test_an_option_that_a_kind_does_not_have_is_refused_before_anything_is_made(tmp_path: Path, folders: str) -> None:
    with pytest.raises(UsageError, match="folders have no plugin"):
        Lab.up(tmp_path / "lab", topology=folders, options={"plugin": tmp_path})
    with pytest.raises(UsageError, match="a lab of artemis-mirror has no option plugin"):
        Lab.up(tmp_path / "lab", topology=MIRROR, options={"plugin": tmp_path})

    assert not (tmp_path / "lab").exists()


def test_a_broker_that_ends_is_told_with_its_log(tmp_path: Path, folders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with pytest.raises(EnvironmentFault, match="london: active did not come true: the broker ended"):
        Lab.up(tmp_path / "lab", topology=folders)

    assert not (tmp_path / "lab").exists()


def test_a_topology_that_no_lab_is_made_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no lab is made of pigeons") as caught:
        Lab.up(tmp_path / "lab", topology="pigeons")

    *most, last = KINDS
    assert caught.value.remedy == f"There are {', '.join(most)} and {last}."


def test_a_kind_is_loaded_when_it_is_named() -> None:
    program = (
        "import sys; import dr_ctl_lab.lab.lab; from dr_ctl_lab.lab.kinds import KINDS;"
        "before = [each for each in sys.modules if each.startswith('dr_ctl_lab.lab.artemis')];"
        "KINDS.named('artemis-mirror');"
        "print(before, [each for each in sys.modules if 'continuity' in each])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[] []\n"
