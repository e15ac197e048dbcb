"""The proxy on a link between two sites: a process per direction, so that a link can be cut, slowed and healed.

Run as `python -m dr_ctl_lab.lab.wire --port P --to HOST:PORT --control C`. Only loopback is listened on. Modes:

    open     forwards; while the far side refuses, the port refuses too, as on a plain network
    refuse   the port is closed, what was connected is reset
    hang     connections are accepted and nothing moves in any of them
    accept   forwards; where the far side refuses, the connection is accepted and held, as by a balancer or a tunnel

Refusing needs a closed port: a broker whose connection is accepted and then reset may believe itself connected for a
minute. A held connection never comes to life, even when the far side is back: balancers are treacherous for that
reason. `open` (heal) resets what is held; connections that only stood still under `hang` go on where they stopped. The
delay applies to each direction and moves bytes later, not fewer of them.

The control port takes one JSON object per line (`{"mode": …}`, `{"delay_ms": …}` or `{}`), answers with the state.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
from collections import deque
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from dr_ctl.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
CHUNK = 256 * 1024
MOST_UNDER_WAY = 64 * 1024 * 1024
DIAL_TIMEOUT_S = 5.0
WATCH_S = 0.2  # less than the brokers' retry interval


class Mode(Enum):
    """Modes of the proxy for connections; see the module."""

    OPEN = "open"
    REFUSE = "refuse"
    HANG = "hang"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class WireState:
    """Answer of a proxy about itself. `through` and `held` count connections, `forwarded` bytes of both directions."""

    mode: str
    delay_ms: float
    through: int
    held: int
    forwarded: int


class Wire:
    """The proxy itself: a listener, its connections, and the mode they all obey."""

    def __init__(self, port: int, target: tuple[str, int], *, delay_ms: float = 0.0) -> None:
        self.mode = Mode.OPEN
        self.delay_s = delay_ms / 1000
        self.forwarded = 0
        self.moving = asyncio.Event()
        self.moving.set()
        self._port = port
        self._target = target
        self._listener: asyncio.Server | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._port_changes = asyncio.Lock()  # two that open it at once: the second cannot, and would not go on
        self._read = asyncio.Event()
        self._through: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._held: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Begin; the port is open when this returns, if the far side is."""
        await self._follow()
        self._watcher = asyncio.create_task(self._watch())

    async def set_mode(self, mode: Mode) -> None:
        """Change over; when this returns the new mode holds for every connection."""
        self.mode = mode
        if mode is Mode.HANG:
            self.moving.clear()
        else:
            self.moving.set()
        match mode:
            case Mode.REFUSE:
                async with self._port_changes:
                    self._shut()
                for writers in list(self._through.values()):
                    _reset(*writers)
            case Mode.OPEN:
                await self._follow()
            case Mode.HANG | Mode.ACCEPT:
                async with self._port_changes:
                    await self._listen()
        if mode in {Mode.REFUSE, Mode.OPEN}:
            _reset(*self._held)
            self._held.clear()

    def state(self) -> WireState:
        through, held = len(self._through), len(self._held)
        return WireState(self.mode.value, self.delay_s * 1000, through, held, self.forwarded)

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        await self.set_mode(Mode.REFUSE)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accepted, LOOPBACK, self._port, limit=CHUNK)

    def _shut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _watch(self) -> None:
        """Keep the port as the far side's is, while nothing is connected through it that would tell."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._read.wait(), WATCH_S)
            self._read.clear()
            if self.mode is Mode.OPEN and not self._through:
                await self._follow()

    async def _follow(self) -> None:
        """Open the port if the far side's is open, else close it."""
        async with self._port_changes:
            try:
                _, writer = await asyncio.wait_for(asyncio.open_connection(*self._target), DIAL_TIMEOUT_S)
                writer.close()
            except (OSError, TimeoutError):
                if self.mode is Mode.OPEN:
                    self._shut()
            else:
                if self.mode is Mode.OPEN:
                    await self._listen()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode is Mode.HANG:
            await self._hold(reader, writer)
            return
        try:
            far = await asyncio.wait_for(asyncio.open_connection(*self._target, limit=CHUNK), DIAL_TIMEOUT_S)
        except (OSError, TimeoutError):
            if self.mode is Mode.ACCEPT:
                await self._hold(reader, writer)
            else:
                self._read.set()
                _reset(writer)
            return
        await self._forward(reader, writer, *far)

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep a connection that leads nowhere, until its owner gives it up or we reset it."""
        self._held.add(writer)
        with contextlib.suppress(ConnectionError):
            while await reader.read(CHUNK):
                pass
        self._held.discard(writer)
        writer.close()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        task = asyncio.current_task()
        if task is None or self.mode is Mode.REFUSE:  # cut while it was dialled
            _reset(writer, far_writer)
            return
        self._through[task] = (writer, far_writer)
        for one in (writer, far_writer):
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, far_writer))
                both.create_task(self._pump(far_reader, writer))
        except* OSError:
            _reset(writer, far_writer)  # a side broke: the other hears of it
        finally:
            del self._through[task]
            self._read.set()
            writer.close()
            far_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Move one direction: bytes read wait their delay in a queue, so that reading goes on meanwhile."""
        line = _Line()
        async with asyncio.TaskGroup() as ends:
            ends.create_task(self._take(reader, line))
            ends.create_task(self._give(line, writer))

    async def _take(self, reader: asyncio.StreamReader, line: _Line) -> None:
        clock = asyncio.get_running_loop()
        while data := await reader.read(CHUNK):
            await line.put(clock.time(), data)
        await line.put(clock.time(), b"")

    async def _give(self, line: _Line, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop()
        while True:
            came_at, data = await line.get()
            if (wait_s := came_at + self.delay_s - clock.time()) > 0:
                await asyncio.sleep(wait_s)
            await self.moving.wait()
            if not data:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            self.forwarded += len(data)


class _Line:
    """Bytes under way, each with the moment it came; bounded, so that a hanging link pushes back."""

    def __init__(self) -> None:
        self._bytes = 0
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._changed = asyncio.Condition()

    async def put(self, at: float, data: bytes) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._bytes < MOST_UNDER_WAY)
            self._pieces.append((at, data))
            self._bytes += len(data)
            self._changed.notify_all()

    async def get(self) -> tuple[float, bytes]:
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._pieces))
            at, data = self._pieces.popleft()
            self._bytes -= len(data)
            self._changed.notify_all()
            return at, data


def _reset(*writers: asyncio.StreamWriter) -> None:
    """End connections with a reset, as a cable that is pulled and put back does to both ends."""
    for writer in writers:
        sock = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        writer.transport.abort()


async def serve_control(wire: Wire, port: int) -> asyncio.Server:
    """Open the control port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(json.dumps(await obey(wire, line)).encode() + b"\n")
                await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, LOOPBACK, port)


async def obey(wire: Wire, line: bytes) -> dict[str, Any]:
    """Do what one line of the control port asks."""
    try:
        asked = json.loads(line)
        if "delay_ms" in asked:
            wire.delay_s = max(0.0, float(asked["delay_ms"])) / 1000
        if "mode" in asked:
            await wire.set_mode(Mode(asked["mode"]))
    except (ValueError, TypeError, OSError) as error:
        return {"error": str(error)}
    return asdict(wire.state())


def ask(control: int, change: Mapping[str, str | float] | None = None, *, timeout_s: float = 5.0) -> WireState:
    """Tell the proxy behind a control port to change something, or nothing; return its state after that.

    EnvironmentFault where it does not answer in time or refuses.
    """
    try:
        with socket.create_connection((LOOPBACK, control), timeout=timeout_s) as sock:
            sock.sendall(json.dumps(change or {}).encode() + b"\n")
            document = json.loads(sock.makefile().readline() or "{}")
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"the lab's proxy at control port {control} does not answer: {error}") from error
    if "mode" not in document:
        raise EnvironmentFault(f"the lab's proxy at control port {control}: {document.get('error', 'an empty answer')}")
    return WireState(**document)


async def run(port: int, target: tuple[str, int], control: int, delay_ms: float) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    wire = Wire(port, target, delay_ms=delay_ms)
    await wire.start()
    await serve_control(wire, control)
    await stop.wait()
    await wire.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="dr_ctl_lab.lab.wire")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    given = parser.parse_args()
    host, _, port = given.to.rpartition(":")
    asyncio.run(run(given.port, (host, int(port)), given.control, given.delay_ms))


if __name__ == "__main__":
    main()
