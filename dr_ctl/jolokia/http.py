"""HTTP to one management address, each answer within one time limit, with TLS as the settings say. The type of an error
says what is known of the address.

Sessions of the library are not used: they follow redirects, keep cookies, and use proxies of the environment. Jolokia
adds these failures to those of a broker itself (`core.errors`):

BrokerError
├── Unreachable
│   └── NotConnected    nothing was sent
├── NotJolokia          something else answers there: a web page, a proxy
├── Torn                JSON that ends early, is too large, or does not fit the question
└── ElementError        one request of several failed, inside an answer that is otherwise fine
    ├── PolicyRefused       the console's policy forbids it (403 inside 200)
    ├── NoSuchBean          no such bean, or no such attribute
    ├── OperationFailed     the operation raised
    └── BadValue            a value of another type than asked for: an error in a value's place
"""

import socket
import ssl
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.exceptions import BaseHTTPError  # type: ignore[attr-defined] # what its raw answers raise

from dr_ctl.core.errors import BrokerError, TimedOut, Unreachable
from dr_ctl.core.system import boottime_s, system
from dr_ctl.core.tls import TlsFiles

CONNECT_S: Final = 2.0
_POOL_SIZE: Final = 10  # connections that threads keep to one address; a further one is closed after its answer
_CHUNK: Final = 64 * 1024
_NO_TLS: Final = (
    "If its certificate is not trusted, name the file of its authority as `tls.ca` of that site; if the certificate is "
    "of another host name, `jolokia:` must have that name; if the broker asks for one, name `tls.cert` and `tls.key`; "
    "if the broker speaks no TLS, `jolokia:` begins with http://."
)


class NotConnected(Unreachable):
    """No connection came about, so no request was sent."""


class NameUnknown(NotConnected):
    is_local = True
    remedy = "Is the address in the settings right, and does this machine's name service know it?"


class NotJolokia(BrokerError):
    is_local = True
    remedy = "Is `jolokia:` the address of the console's Jolokia, as in http://host:8161/console/jolokia?"


class Torn(BrokerError):
    remedy = "Something between this machine and the broker cuts or alters answers; try from another host."


class ElementError(BrokerError):
    """One request of a POST failed; the other answers are valid."""


class PolicyRefused(ElementError):
    remedy = "Set `origin:` of the site to what the console allows, or allow the operation in its jolokia-access.xml."


class NoSuchBean(ElementError):
    remedy = "The name may be misspelt in the settings file, or the broker is another version than expected."


class OperationFailed(ElementError):
    remedy = "The broker refused the operation; its log says why."


class Vanished(OperationFailed):
    """A client's connection began or ended during the reading, so that a bean is gone, or the broker's listing failed
    or lacks rows."""


class BadValue(ElementError):
    remedy = "The broker gave an error in place of a value; its log says why."


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer, maybe a redirect; the header names may be upper or lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytearray


class Http:
    """Connections to one address, kept between requests."""

    def __init__(self, headers: Mapping[str, str], tls: TlsFiles) -> None:
        self._headers = {"Accept-Encoding": "gzip, deflate", "User-Agent": "dr-ctl", **headers}
        self._tls = tls
        self._adapter: BaseAdapter | None = None
        self._bare: dict[tuple[str, str], requests.PreparedRequest] = {}

    def close(self) -> None:
        if self._adapter is not None:
            self._adapter.close()

    def ask(self, method: str, url: str, *, timeout_s: float, max_bytes: int, body: bytes | None = None) -> HttpReply:
        """Send one request. A body longer than `max_bytes` is cut soon after that length. Raises NotConnected
        (`refused` if the port refused), Unreachable, TimedOut, and Torn for an answer that cannot be read to its
        end."""
        until = boottime_s() + timeout_s
        with self._send(method, url, body, timeout_s) as reply:
            return HttpReply(reply.status_code, reply.headers, _body(reply, url, until, timeout_s, max_bytes))

    def _send(self, method: str, url: str, body: bytes | None, timeout_s: float) -> requests.Response:
        connect_s = min(CONNECT_S, timeout_s)
        try:
            request, limits = self._prepared(method, url, body), (connect_s, timeout_s)
            return self._adapter_for(url).send(request, stream=True, timeout=limits, verify=self._tls.verify)
        except requests.exceptions.SSLError as error:
            raise Unreachable(f"{url}: TLS failed: {error}", refused=False, remedy=_NO_TLS) from error
        except requests.ConnectTimeout as error:
            # The whole host is silent, unlike a process that takes the connection and does not answer.
            raise NotConnected(f"{url}: no connection within {connect_s:g} s", refused=False) from error
        except requests.ReadTimeout as error:
            raise TimedOut(f"{url}: no answer within {timeout_s:g} s") from error
        except requests.ConnectionError as error:
            raise _unconnected(url, error) from error
        except requests.RequestException as error:
            raise Torn(f"{url}: the answer could not be read: {error}") from error
        except OSError as error:  # not an error of the library, so a file of this machine
            text = f"{url}: a file that TLS needs cannot be used, of {', '.join(self._tls.files)}: {error}"
            remedy = "Name PEM files that this user can read as `tls.ca`, `tls.cert` and `tls.key` of that site."
            raise NotConnected(text, refused=False, remedy=remedy) from error

    def _prepared(self, method: str, url: str, body: bytes | None) -> requests.PreparedRequest:
        """Copy a prepared request: preparing takes longer than sending, and a drain asks many times a second."""
        if (method, url) not in self._bare:
            self._bare[method, url] = requests.Request(method, url, self._headers).prepare()
        request = self._bare[method, url].copy()
        if body is not None:
            request.body, request.headers["Content-Length"] = body, str(len(body))
        return request

    def _adapter_for(self, url: str) -> BaseAdapter:
        """Make the adapter when it is needed, so that a missing TLS file makes only this address unreachable."""
        if self._adapter is None:
            wires = system().wires
            if wires is not None:
                self._adapter = wires.adapter()
            elif url.startswith("https:"):
                if not self._tls.verify:  # a finding of each command says so
                    warnings.filterwarnings("ignore", "Unverified HTTPS request")
                self._adapter = _TlsAdapter(self._tls.context())
            else:
                self._adapter = HTTPAdapter(pool_maxsize=_POOL_SIZE)
        return self._adapter


class _TlsAdapter(HTTPAdapter):
    """An adapter with one TLS context for all connections, because loading the trusted certificates takes longer than a
    reading. Without a named file, this machine's certificates are trusted, not the library's."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(pool_maxsize=_POOL_SIZE)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, ssl_context=self._context)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Do nothing: the context verifies."""


def _unconnected(url: str, error: requests.ConnectionError) -> Unreachable:
    """Classify a failed connection by the system's error, never by the text, which has the address in it."""
    causes = [cause for cause in _causes(error) if not isinstance(cause, requests.RequestException)]
    cause = next((cause for cause in reversed(causes) if isinstance(cause, OSError)), None)
    if isinstance(cause, socket.gaierror):
        return NameUnknown(f"{url}: its name cannot be resolved", refused=False)
    if isinstance(cause, ConnectionRefusedError):
        return NotConnected(f"{url}: connection refused", refused=True)
    if any(hasattr(failure, "reason") for failure in causes):  # urllib3 gave up without a connection
        return NotConnected(f"{url}: no connection: {cause or error}", refused=False)
    return Unreachable(f"{url}: the connection failed: {error}", refused=False)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__ or error.__context__
    if cause is not None:
        yield cause
        yield from _causes(cause)


def _body(reply: requests.Response, url: str, until: float, timeout_s: float, max_bytes: int) -> bytearray:
    body = bytearray()
    try:
        # Read packet by packet: a slow answer may keep the limit of every read and still never end.
        while len(body) <= max_bytes and (chunk := reply.raw.read1(_CHUNK, decode_content=True)):
            body += chunk
            if boottime_s() > until:
                raise TimedOut(f"{url}: the answer came too slowly")
    except (BaseHTTPError, OSError) as error:
        if any(isinstance(failure, TimeoutError) for failure in (error, *_causes(error))):
            raise TimedOut(f"{url}: no answer within {timeout_s:g} s") from error
        raise Torn(f"{url}: the answer could not be read: {error}") from error
    return body
