"""The proxy of one direction of a link, which can be cut, delayed and healed.

Run as `python -m dr_ctl_lab.lab.wire --port P --to HOST:PORT --control C`. It listens on loopback only. Modes:

    open     forwards; while the target refuses, the port refuses too, as without a proxy
    refuse   the port is closed, and connections are reset
    hang     connections are accepted, and no data moves
    accept   forwards; while the target refuses, connections are accepted and held, as by a load balancer

Refusing needs a closed port: a broker whose connection is accepted and then reset may take it for connected for a
minute. A held connection never forwards, even when the target is back. `open` (heal) resets held connections; those
that existed before a `hang` continue. The delay applies to each direction, and does not limit the bandwidth.

The control port takes one JSON object per line (`{"mode": …}`, `{"delay_ms": …}` or `{}`), and answers with the state.
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
    """The state of a proxy. `through` and `held` count connections, `forwarded` the bytes of both directions."""

    mode: str
    delay_ms: float
    through: int
    held: int
    forwarded: int


class Wire:
    """A proxy: a listener, its connections, and their mode."""

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
        self._port_changes = asyncio.Lock()  # opening it twice at once would fail
        self._read = asyncio.Event()
        self._through: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._held: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Start; the port is open when this returns, if the target's is."""
        await self._follow()
        self._watcher = asyncio.create_task(self._watch())

    async def set_mode(self, mode: Mode) -> None:
        """Change the mode; it applies to every connection when this returns."""
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
        """Open and close the port as the target's, while no connection would show that."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._read.wait(), WATCH_S)
            self._read.clear()
            if self.mode is Mode.OPEN and not self._through:
                await self._follow()

    async def _follow(self) -> None:
        """Open the port if the target's is open, else close it."""
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
            far_side = await asyncio.wait_for(asyncio.open_connection(*self._target, limit=CHUNK), DIAL_TIMEOUT_S)
        except (OSError, TimeoutError):
            if self.mode is Mode.ACCEPT:
                await self._hold(reader, writer)
            else:
                self._read.set()
                _reset(writer)
            return
        await self._forward(reader, writer, *far_side)

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep a connection without a target, until the client closes it or it is reset."""
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
        if task is None or self.mode is Mode.REFUSE:  # the mode changed meanwhile
            _reset(writer, far_writer)
            return
        self._through[task] = (writer, far_writer)
        for end in (writer, far_writer):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, far_writer))
                pumps.create_task(self._pump(far_reader, writer))
        except* OSError:
            _reset(writer, far_writer)  # one side broke: reset both
        finally:
            del self._through[task]
            self._read.set()
            writer.close()
            far_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction: a queue delays the bytes, so that reading continues meanwhile."""
        buffer = _DelayQueue()
        async with asyncio.TaskGroup() as ends:
            ends.create_task(self._read_into(reader, buffer))
            ends.create_task(self._write_from(buffer, writer))

    async def _read_into(self, reader: asyncio.StreamReader, buffer: _DelayQueue) -> None:
        clock = asyncio.get_running_loop()
        while data := await reader.read(CHUNK):
            await buffer.put(clock.time(), data)
        await buffer.put(clock.time(), b"")

    async def _write_from(self, buffer: _DelayQueue, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop()
        while True:
            received_at, data = await buffer.get()
            if (wait_s := received_at + self.delay_s - clock.time()) > 0:
                await asyncio.sleep(wait_s)
            await self.moving.wait()
            if not data:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            self.forwarded += len(data)


class _DelayQueue:
    """Delayed bytes with their arrival times; bounded, so that a hanging link stops the sender."""

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
    """End connections with a reset."""
    for writer in writers:
        sock = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        writer.transport.abort()


async def serve_control(wire: Wire, port: int) -> asyncio.Server:
    """Open the control port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while buffer := await reader.readline():
                writer.write(json.dumps(await execute(wire, buffer)).encode() + b"\n")
                await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, LOOPBACK, port)


async def execute(wire: Wire, buffer: bytes) -> dict[str, Any]:
    """Execute a line of the control port."""
    try:
        command = json.loads(buffer)
        if "delay_ms" in command:
            wire.delay_s = max(0.0, float(command["delay_ms"])) / 1000
        if "mode" in command:
            await wire.set_mode(Mode(command["mode"]))
    except (ValueError, TypeError, OSError) as error:
        return {"error": str(error)}
    return asdict(wire.state())


def request(control: int, change: Mapping[str, str | float] | None = None, *, timeout_s: float = 5.0) -> WireState:
    """Send a change, or none, to the proxy at a control port; return its state. EnvironmentFault where it does not
    answer in time, or refuses."""
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
    arguments = parser.parse_args()
    host, _, port = arguments.to.rpartition(":")
    asyncio.run(run(arguments.port, (host, int(port)), arguments.control, arguments.delay_ms))


if __name__ == "__main__":
    main()
