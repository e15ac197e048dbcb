"""The proxy on a link, as the process that a lab runs."""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab import daemons, wire
from dr_ctl_lab.lab.ports import release_ports, reserve_ports
from tests.broker.driving import until
from tests.stomp_io.listeners import closed_port


class Far:
    """A far side that sends everything back, can go away, and can come back on the same port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._server: ThreadingTCPServer | None = None
        self._open: list[socket.socket] = []

    def up(self) -> None:
        opened = self._open

        class Echo(BaseRequestHandler):
            def handle(self) -> None:
                opened.append(self.request)
                with contextlib.suppress(OSError):
                    while data := self.request.recv(1 << 16):
                        self.request.sendall(data)

        class Server(ThreadingTCPServer):
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", self.port), Echo)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        if self._server is None:
            return
        self._server.shutdown()
        self._server.socket.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._server.server_close()  # waits for who serves a connection
        self._server = None


class Link:
    """A running proxy, its two ports and its far side."""

    def __init__(self, port: int, control: int, far: Far) -> None:
        self.port, self.control, self.far = port, control, far

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def tell(self, **change: str | float) -> wire.WireState:
        return wire.ask(self.control, change)

    def refuses(self) -> bool:
        try:
            self.dial().close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:
            return False  # met the port as it was closing
        return False


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    monkeypatch.setenv("DR_CTL_CACHE", str(tmp_path / "cache"))
    port, control, far_port = reserve_ports(3, tmp_path)
    far = Far(far_port)
    far.up()
    argv = [sys.executable, "-m", wire.__name__, "--port", str(port), "--control", str(control)]
    process = daemons.launch([*argv, "--to", f"127.0.0.1:{far_port}"], cwd=tmp_path, log=tmp_path / "log")
    try:
        until(lambda: _answers(control))
        yield Link(port, control, far)
    finally:
        daemons.end(process, within_s=5)
        far.down()
        release_ports(tmp_path)


def _answers(control: int) -> bool:
    try:
        wire.ask(control)
    except EnvironmentFault:
        return False
    return True


def _say(sock: socket.socket, data: bytes = b"hello") -> float:
    """Send and wait for the echo; return the seconds it took."""
    began = time.monotonic()
    sock.sendall(data)
    got = 0
    while got < len(data):
        piece = sock.recv(1 << 16)
        assert piece, "closed"
        got += len(piece)
    return time.monotonic() - began


def _is_reset(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_bytes_go_through_and_are_counted_with_a_delay_in_each_direction(link: Link) -> None:
    with link.dial() as sock:
        _say(sock, b"x" * 100_000)
        state = link.tell(delay_ms=60)
        assert 0.12 <= _say(sock) < 1.0

    assert (state.mode, state.through, state.forwarded) == ("open", 1, 200_000)
    with pytest.raises(EnvironmentFault, match="sideways"):
        link.tell(mode="sideways")
    assert link.tell().mode == "open"


def test_refuse_resets_what_is_connected_and_healed_by_several_at_once_it_follows_the_far_side(link: Link) -> None:
    with link.dial() as sock:
        _say(sock)
        link.tell(mode="refuse")
        assert _is_reset(sock)
        assert link.refuses()
    for _ in range(20):
        link.tell(mode="refuse")
        with ThreadPoolExecutor(max_workers=4) as several:
            states = list(several.map(lambda _: link.tell(mode="open").mode, range(4)))
        assert states == ["open"] * 4

    with link.dial() as sock:
        _say(sock)
        link.far.down()
        assert _is_reset(sock), "the end of the far side is passed on"
    until(link.refuses)
    link.far.up()
    until(lambda: not link.refuses())


def test_hang_holds_and_heal_goes_on_where_it_stopped_or_resets_what_was_held(link: Link) -> None:
    with link.dial() as sock:
        _say(sock)
        link.tell(mode="hang")
        with link.dial():
            until(lambda: link.tell().held == 1)
        until(lambda: link.tell().held == 0, why="one that is given up is forgotten")
        with link.dial() as held:
            held.sendall(b"hello")
            until(lambda: link.tell().held == 1)
            sock.sendall(b"later")
            sock.settimeout(0.2)
            with pytest.raises(TimeoutError):
                sock.recv(5)

            link.tell(mode="open")

            sock.settimeout(5)
            assert sock.recv(5) == b"later"
            assert _is_reset(held)


def test_accept_holds_while_the_far_side_is_down_and_does_not_let_go_when_it_is_back(link: Link) -> None:
    link.tell(mode="accept")
    link.far.down()
    with link.dial() as sock:
        sock.sendall(b"hello")
        until(lambda: link.tell().held == 1)
        link.far.up()
        with link.dial() as fresh:
            _say(fresh)  # a new connection goes through

        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)


def test_a_proxy_that_is_gone_is_an_environment_fault() -> None:
    with pytest.raises(EnvironmentFault, match="does not answer"):
        wire.ask(closed_port().port)
