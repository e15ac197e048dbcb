"""Ports of labs."""

import socket
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab.ports import release_ports, reserve_ports


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DR_CTL_CACHE", str(tmp_path / "cache"))


def test_ports_of_two_labs_differ_and_those_of_a_lab_that_is_gone_are_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dr_ctl_lab.lab.ports._range", lambda: (20_000, 20_006))
    monkeypatch.setattr("dr_ctl_lab.lab.ports._is_free", lambda _: True)  # nobody listens yet
    lab = tmp_path / "lab"
    lab.mkdir()
    reserve_ports(6, lab)
    with pytest.raises(EnvironmentFault, match="free ports"):
        reserve_ports(1, tmp_path)
    lab.rmdir()

    assert len(reserve_ports(6, tmp_path)) == 6
    release_ports(tmp_path)
    assert len(reserve_ports(6, tmp_path)) == 6


def test_a_port_in_use_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr("dr_ctl_lab.lab.ports._range", lambda: (port, port + 1))

        with pytest.raises(EnvironmentFault):
            reserve_ports(1, tmp_path)
