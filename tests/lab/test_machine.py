"""What labs share on this machine: processes by pid and start time, a directory, locks, distributions and ports; and
the proxy on a link, as the process that a lab runs."""

import contextlib
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab import daemons, distribution, loads, wire
from dr_ctl_lab.lab.cache import cache_dir, locked
from dr_ctl_lab.lab.distribution import Coordinates
from dr_ctl_lab.lab.ports import release_ports, reserve_ports
from tests.broker.driving import until
from tests.stomp_io.listeners import closed_port

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[daemons.Process]:
    process = daemons.launch([sys.executable, "-c", "import time; time.sleep(60)"], cwd=tmp_path, log=tmp_path / "log")
    yield process
    daemons.kill(process)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_process_is_ended(sleeper: daemons.Process, frozen: bool) -> None:
    assert sleeper.alive()
    if frozen:
        daemons.send(sleeper, signal.SIGSTOP)
        until(sleeper.frozen)

    daemons.end(sleeper, within_s=5)

    assert not sleeper.alive()


def test_one_that_does_not_heed_is_killed(tmp_path: Path) -> None:
    process = daemons.launch([sys.executable, "-c", STUBBORN], cwd=tmp_path, log=tmp_path / "log")
    until(lambda: "deaf" in (tmp_path / "log").read_text())

    daemons.end(process, within_s=0.1)

    assert not process.alive()


def test_a_stranger_with_the_same_pid_is_left_alone(sleeper: daemons.Process) -> None:
    namesake = replace(sleeper, started=sleeper.started - 1)

    assert not namesake.alive()
    assert not daemons.send(namesake, signal.SIGKILL)
    daemons.end(namesake, within_s=1)
    assert sleeper.alive()


LOADING = """
import sys, time
from pathlib import Path
from dr_ctl_lab.lab import loads
with loads.running(Path(sys.argv[1])):
    time.sleep(60)
"""


def test_a_load_in_another_process_is_ended_and_no_other(tmp_path: Path) -> None:
    def noted() -> list[Path]:
        return list((tmp_path / loads.FOLDER).glob("[0-9]*"))

    with loads.running(tmp_path):
        loads.end_all(tmp_path)
        assert noted(), "this process is left alone"
    assert not noted(), "one that ended by itself is named no more"
    loading = subprocess.Popen([sys.executable, "-c", LOADING, str(tmp_path)])
    try:
        until(noted)
        (tmp_path / loads.FOLDER / "1").write_text("{")  # names nobody

        loads.end_all(tmp_path)

        assert loading.wait(timeout=5) != 0
    finally:
        loading.kill()
        loading.wait()


TOY = Coordinates("org.example", "toy", "1.0")
MAVEN = """#!/bin/sh
echo called >> "$TOY_CALLS"
for word in "$@"; do
  case "$word" in -DoutputDirectory=*) cp "$TOY_ARCHIVE" "${word#*=}/toy-1.0-bin.tar.gz" ;; esac
done
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DR_CTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH that holds a Java, a Maven that copies, and the shell's tools."""
    folder = tmp_path / "programs"
    folder.mkdir()
    _program(folder / "java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    _program(folder / "mvn", MAVEN)
    unpacked = tmp_path / "toy-1.0"
    (unpacked / "bin").mkdir(parents=True)
    with tarfile.open(tmp_path / "toy.tar.gz", "w:gz") as archive:
        archive.add(unpacked, "toy-1.0")
    monkeypatch.setenv("TOY_ARCHIVE", str(tmp_path / "toy.tar.gz"))
    monkeypatch.setenv("TOY_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_lock_that_is_held_too_long_is_named() -> None:
    with locked("busy", within_s=1), pytest.raises(EnvironmentFault, match=r"busy\.lock"), locked("busy", within_s=0.1):
        pass


def test_a_distribution_is_fetched_once_by_labs_that_start_at_once(programs: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(max_workers=4) as several:
        homes = {*several.map(lambda _: distribution.obtain(TOY), range(4))}

    assert [(home / "bin").is_dir() for home in homes] == [True]
    assert (tmp_path / "calls").read_text() == "called\n"
    assert [path.name for path in cache_dir().iterdir() if path.is_dir()] == ["toy-1.0"]


def test_a_maven_that_fails_is_quoted_and_leaves_nothing(programs: Path) -> None:
    _program(programs / "mvn", "#!/bin/sh\necho 'Could not find artifact'\nexit 1\n")

    with pytest.raises(EnvironmentFault, match="Could not find artifact"):
        distribution.obtain(TOY)

    assert [path for path in cache_dir().iterdir() if path.is_dir()] == []


def test_what_is_missing_or_too_old_is_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    (programs / "mvn").unlink()
    with pytest.raises(EnvironmentFault, match="no `mvn` on the PATH"):
        distribution.obtain(TOY)
    _program(programs / "java", "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    with pytest.raises(EnvironmentFault, match="Java 11 is too old"):
        distribution.obtain(TOY)
    (programs / "java").unlink()
    with pytest.raises(EnvironmentFault, match="no `java` on the PATH"):
        distribution.obtain(TOY)


def test_ports_of_a_lab_are_its_own_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    def __init__(self, port: int, control: int, far: Far) -> None:
        self.port, self.control, self.far = port, control, far

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def tell(self, **change: str | float) -> wire.WireState:
        return wire.request(self.control, change)

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
        wire.request(control)
    except EnvironmentFault:
        return False
    return True


def _say(sock: socket.socket, data: bytes = b"hello") -> float:
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
        wire.request(closed_port().port)
