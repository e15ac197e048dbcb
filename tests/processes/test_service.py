"""What a service manager is told over its socket, and that one which is gone stops nobody."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dr_ctl.processes import service


@pytest.mark.parametrize("address", ["{}/notify", "@dr-ctl-{}"])
def test_a_service_manager_that_listens_is_told(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = address.format(tmp_path if address.startswith("{") else tmp_path.name)
    monkeypatch.setenv("NOTIFY_SOCKET", told)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(told.replace("@", "\0"))
        manager.settimeout(5)

        assert service.notify(service.READY, service.ALIVE, "STATUS=london serves")

        assert manager.recv(1000).decode().splitlines() == ["READY=1", "WATCHDOG=1", "STATUS=london serves"]


@pytest.mark.parametrize("place", [None, "", "relative", "/nowhere/notify"])
def test_without_one_nothing_is_sent(place: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if place is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", place)

    assert not service.notify(service.READY)
