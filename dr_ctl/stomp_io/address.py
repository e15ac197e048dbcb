"""Where a STOMP port is, who calls there, and what an attempt there ends with. Secrets stay out of every repr."""

import socket
import ssl
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from dr_ctl.core.system import beside

_SCHEMES = {"stomp": False, "stomp+ssl": True}


@dataclass(frozen=True, slots=True)
class Address:
    """A STOMP port; `tls` says whether it speaks TLS from the first byte."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'stomp+ssl' if self.tls else 'stomp'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password; the password is never printed."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files for TLS: the authority to trust (None: the system's) and an own certificate."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Build a client context; OSError and ssl.SSLError where a file is unusable."""
        context = ssl.create_default_context(cafile=self.ca)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


def parse_address(text: str) -> Address:
    """Read `stomp://host:port` or `stomp+ssl://host:port`; ValueError says what is wrong with anything else."""
    expected = "expected stomp://HOST:PORT or stomp+ssl://HOST:PORT"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not a STOMP address ({error}): {expected}") from error
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"{text!r} is not a STOMP address (scheme {parts.scheme!r}): {expected}")
    if not host or not port:
        raise ValueError(f"{text!r} is not a STOMP address ({'port' if host else 'host'} is missing): {expected}")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"a STOMP address carries no login; use username and password: {expected}")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is not a STOMP address (something follows the port): {expected}")
    return Address(host, port, tls=_SCHEMES[parts.scheme])


Endpoint = tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]


def endpoints(address: Address, *, timeout_s: float) -> list[Endpoint]:
    """Look the name up, within the time: OSError where it has no address, TimeoutError where nobody says.

    The system's look-up cannot be bounded, so one that needs a name server goes on beside, and is left
    behind when it takes too long: a site that is lost often takes its name server along.
    """
    try:
        return _look_up(address, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # a name, not a number
    looking_up = beside(partial(_look_up, address, 0), f"look up {address.host}")
    if not looking_up.wait(timeout_s):
        raise TimeoutError(f"the name {address.host} was not resolved within {timeout_s:g} s")
    return looking_up.result()


def _look_up(address: Address, flags: int) -> list[Endpoint]:
    rows = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, where) for family, _, _, _, where in rows]


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker let us in."""

    server: str
    version: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Nobody listens there: the connection was refused."""

    because: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A broker answered, and said no."""

    because: str


@dataclass(frozen=True, slots=True)
class Silent:
    """Unclear: accepted without a greeting in time, reset, unreachable, or not STOMP."""

    because: str


Greeting = Connected | Closed | Refused | Silent


@dataclass(frozen=True, slots=True)
class Passed:
    """The message came back and its acknowledgement was confirmed, so the queue is clean."""

    took_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The message did not come back, and may be left in the queue."""

    because: str


RoundTrip = Passed | Failed
