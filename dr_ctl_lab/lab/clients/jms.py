"""Clients of the brokers' Java libraries, CORE and OpenWire: one Java process that is controlled by lines of text.

Its source file is compiled at the first use, with the libraries of the brokers' distribution.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.client import ConnectionLost, RequestRefused
from dr_ctl_lab.lab.cache import cache_dir, locked
from dr_ctl_lab.lab.clients.client import (
    ID_HEADER,
    LOGIN_S,
    SILENT_S,
    WINDOW_BYTES,
    Confirmed,
    Outgoing,
    Proto,
    Received,
    no_compiler,
)
from dr_ctl_lab.lab.daemons import LIGHT

SOURCE: Final = Path(__file__).with_name("Jms.java")
RENAMED: Final = "jakarta.jms-api-[3-9]*"  # JMS with its later package name
COMPILE_S: Final = 120.0
BYTES_PER_MESSAGE: Final = 400
_NONE: Final = "-"
_PROCESS_ENDED: Final = "the clients' Java process has ended"
_SILENT_MS: Final = round(SILENT_S * 1000)
_GREETING_MS: Final = round(LOGIN_S * 1000)
# Options of connections: confirmations mean on disk, silent connections end, no automatic reconnect.
_CORE: Final = {
    "reconnectAttempts": 0,
    "initialConnectAttempts": 1,
    "blockOnAcknowledge": "true",
    "callTimeout": _SILENT_MS,
    "connectionTTL": _SILENT_MS,
    "clientFailureCheckPeriod": _SILENT_MS // 2,
    "consumerWindowSize": WINDOW_BYTES,
}
_OPENWIRE: Final = {
    "wireFormat.maxInactivityDuration": _SILENT_MS,
    "jms.sendAcksAsync": "false",
    "jms.alwaysSyncSend": "true",
    "jms.watchTopicAdvisories": "false",
    "jms.sendTimeout": _SILENT_MS,
    "jms.connectResponseTimeout": _GREETING_MS,
    "jms.closeTimeout": 500,
    "jms.prefetchPolicy.queuePrefetch": WINDOW_BYTES // BYTES_PER_MESSAGE,
}
# Of each protocol: the connection factory, its options, and the mode for acknowledging one message.
_FACTORIES: Final[Mapping[Proto, tuple[str, Mapping[str, object], str]]] = {
    Proto.CORE: ("org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory", _CORE, "101"),
    Proto.OPENWIRE: ("org.apache.activemq.ActiveMQConnectionFactory", _OPENWIRE, "4"),
}


class Jvm:
    """The Java process: the first client starts it, and `close` ends it."""

    def __init__(self, home: Path) -> None:
        """`home` is the brokers' distribution."""
        self._home = home
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._clients: dict[str, queue.SimpleQueue[list[str]]] = {}
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None

    def client(self, protocol: Proto, address: Address, login: Login) -> JmsClient:
        """Connect. ConnectionLost where no client is let in, RequestRefused where the broker refuses."""
        factory, options, mode = _FACTORIES[protocol]
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = self._started()
            number, replies = str(next(self._numbers)), queue.SimpleQueue[list[str]]()
            self._clients[number] = replies
        client = JmsClient(self, number, replies, address)
        text = "&".join(f"{name}={received}" for name, received in options.items())
        url = f"tcp://{address.host}:{address.port}?{text}"
        client.open([factory, url, login.user, login.password, mode])
        return client

    def send_line(self, words: Sequence[str]) -> None:
        """Send a command. ConnectionLost where the process has ended."""
        line = "\t".join(words) + "\n"
        with self._lock:
            process = self._process
            if process is None or process.stdin is None:
                raise ConnectionLost(_PROCESS_ENDED)
            try:
                process.stdin.write(line)
                process.stdin.flush()
            except OSError as error:
                raise ConnectionLost(f"{_PROCESS_ENDED}: {error}") from error

    def forget(self, number: str) -> None:
        self._clients.pop(number, None)

    def close(self) -> None:
        """End the process, if it runs."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            process.wait()
            assert self._listener is not None
            self._listener.join()

    def _started(self) -> subprocess.Popen[str]:
        classes = compiled(self._home)
        argv = ["java", "-Xms32m", "-Xmx256m", *LIGHT, "-cp", f"{classes}:{libraries(self._home)}", SOURCE.stem]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
        )
        self._listener = threading.Thread(target=self._listen, args=(process,), name="jms", daemon=True)
        self._listener.start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                number, *words = line.rstrip("\n").split("\t")
                if (replies := self._clients.get(number)) is not None:
                    replies.put(words)
        for replies in list(self._clients.values()):
            replies.put(["lost", _PROCESS_ENDED])


class JmsClient:
    """Implements `Client`."""

    def __init__(self, jvm: Jvm, number: str, replies: queue.SimpleQueue[list[str]], address: Address) -> None:
        self._jvm, self._number, self._replies, self._address = jvm, number, replies, address

    def open(self, words: Sequence[str]) -> None:
        self._send("open", *words)
        try:
            if self._replies.get(timeout=LOGIN_S + SILENT_S) == ["opened", _NONE]:
                return
        except queue.Empty:
            pass
        self.close()
        raise ConnectionLost(f"{self._address}: not let in")

    def subscribe(
        self, queues: Sequence[str], *, confirm: str | None = None, window_bytes: int = WINDOW_BYTES, selector: str = ""
    ) -> None:
        del window_bytes  # the Java clients have a fixed window
        for item in queues:
            self._send("subscribe", confirm or _NONE, item, _coded(selector))

    def send(self, message: Outgoing, *, confirm: str | None) -> None:
        traits = message.traits
        headers = {**({ID_HEADER: message.ident} if message.ident else {}), **message.headers}
        self._send(
            "send", confirm or _NONE, message.queue, _coded(message.body), traits.part or _NONE, traits.group or _NONE,
            str(traits.delay_ms), str(traits.ttl_ms), str(int(traits.urgent)),
            *(word for name, received in headers.items() for word in (name, _coded(received))),
        )  # fmt: skip

    def ack(self, received: Received, *, confirm: str | None) -> None:
        self._send("ack", confirm or _NONE, received.token)

    def receive(self, timeout_s: float) -> Sequence[Received | Confirmed]:
        received: list[Received | Confirmed] = []
        try:
            received.append(self._parsed(self._replies.get(timeout=max(timeout_s, 0.0))))
            while True:
                received.append(self._parsed(self._replies.get_nowait()))
        except queue.Empty:
            return received

    def beat(self) -> None:
        """Do nothing: the library sends heart-beats."""

    def close(self, *, politely: bool = True) -> None:
        del politely
        self._jvm.forget(self._number)
        with contextlib.suppress(ConnectionLost):
            self._send("close")

    def _parsed(self, words: Sequence[str]) -> Received | Confirmed:
        match words:
            case ["came", queue_name, token, ident]:
                return Received(queue_name, ident, token)
            case ["confirmed", name]:
                return Confirmed(name)
            case ["refused", text]:
                raise RequestRefused(f"{self._address}: {text}")
            case _:
                raise ConnectionLost(f"{self._address}: {' '.join(words)}")

    def _send(self, *words: str) -> None:
        self._jvm.send_line([self._number, *words])


def libraries(home: Path) -> str:
    return f"{home}/lib/*:{home}/lib/optional/*"


def compiled(home: Path) -> Path:
    """Return the folder with the class, compiled for that distribution. EnvironmentFault where it does not compile."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    folder = cache_dir() / f"clients-{home.name}-{digest}"
    if folder.is_dir():
        return folder
    compiler = shutil.which("javac")
    if compiler is None:
        raise no_compiler()
    with locked(folder.name, within_s=COMPILE_S):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
                source = Path(scratch) / SOURCE.name
                text = SOURCE.read_text(encoding="utf-8")
                renamed = any((home / "lib").glob(RENAMED))
                source.write_text(text.replace("javax.jms", "jakarta.jms") if renamed else text, encoding="utf-8")
                argv = [compiler, "-cp", libraries(home), "-d", f"{scratch}/classes", str(source)]
                done = subprocess.run(argv, capture_output=True, text=True, timeout=COMPILE_S, check=False)
                if done.returncode != 0:
                    raise EnvironmentFault(f"{SOURCE.name} cannot be compiled for {home.name}: {done.stderr[-600:]}")
                (Path(scratch) / "classes").rename(folder)  # atomic
    return folder


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or _NONE
