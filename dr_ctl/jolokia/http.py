"""HTTP to one management address, each answer within one time limit: TLS as the settings say, no proxy of the
environment, and failures by what they tell of that address.

Not over `requests`: to import it takes longer than two looks at a site do, and in a failover clients wait for that.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    SSLError,
    TimeoutError,  # noqa: A004 - the library's own, and no other here
)

from dr_ctl.core.clock import growing_s
from dr_ctl.core.errors import TimedOut, Unreachable
from dr_ctl.jolokia.errors import NameUnknown, NotConnected, Torn

CONNECT_S: Final = 2.0
_KEPT: Final = 10
"""Threads that share a place keep so many connections; another's is closed after its answer."""
_CHUNK: Final = 64 * 1024
_NO_TLS: Final = (
    "If its certificate is not trusted, name the file of its authority as `tls.ca` of that site; if the certificate is "
    "of another host name, `jolokia:` must have that name; if the broker asks for one, name `tls.cert` and `tls.key`; "
    "if the broker speaks no TLS, `jolokia:` begins with http://."
)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer, a redirect too; the header names may be upper or lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytearray


class Http:
    """Connections to one place, kept between questions. `verify`: the file of the authorities to trust, or whether to
    trust those that this machine does. `cert`: the files of an own certificate and of its key."""

    def __init__(self, headers: Mapping[str, str], verify: bool | str, cert: tuple[str, str] | None = None) -> None:
        self._headers = {"Accept-Encoding": "gzip, deflate", "User-Agent": "dr-ctl", **headers}
        self._verify, self._cert = verify, cert
        self._pools: urllib3.PoolManager | None = None

    def close(self) -> None:
        if self._pools is not None:
            self._pools.clear()

    def ask(self, method: str, url: str, *, timeout_s: float, most: int, body: bytes | None = None) -> HttpReply:
        """Ask once. Of a body longer than `most` its beginning comes, longer than that too. Raises NotConnected
        (`refused` where the port said no), Unreachable, TimedOut, and Torn where an answer began and cannot be read."""
        until = growing_s() + timeout_s
        with self._begun(method, url, body, timeout_s) as reply:
            return HttpReply(reply.status, reply.headers, _body(reply, url, until, timeout_s, most))

    def _begun(self, method: str, url: str, body: bytes | None, timeout_s: float) -> urllib3.BaseHTTPResponse:
        connect_s = min(CONNECT_S, timeout_s)
        try:
            return self._opened(url).urlopen(
                method,
                url,
                body=body,
                headers=self._headers,
                timeout=urllib3.Timeout(connect=connect_s, read=timeout_s),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except SSLError as error:
            raise Unreachable(f"{url}: TLS failed: {error}", refused=False, remedy=_NO_TLS) from error
        except NameResolutionError as error:
            raise NameUnknown(f"{url}: its name cannot be resolved", refused=False) from error
        except NewConnectionError as error:
            # By the system's own error, never by the text, which holds the address.
            refused = isinstance(error.__cause__, ConnectionRefusedError)
            what = "connection refused" if refused else f"no connection: {error.__cause__ or error}"
            raise NotConnected(f"{url}: {what}", refused=refused) from error
        except ConnectTimeoutError as error:
            # Silence of the whole host: unlike a process that takes the connection and then says nothing.
            raise NotConnected(f"{url}: no connection within {connect_s:g} s", refused=False) from error
        except TimeoutError as error:
            raise TimedOut(f"{url}: no answer within {timeout_s:g} s") from error
        except ProtocolError as error:
            raise Unreachable(f"{url}: the connection failed: {error}", refused=False) from error
        except HTTPError as error:
            raise Torn(f"{url}: the answer could not be read: {error}") from error
        except OSError as error:  # not an error of the library, so a file of this machine
            files = [self._verify] if isinstance(self._verify, str) else []
            text = (
                f"{url}: a file that TLS needs cannot be used, of {', '.join([*files, *(self._cert or ())])}: {error}"
            )
            remedy = "Name PEM files that this user can read as `tls.ca`, `tls.cert` and `tls.key` of that site."
            raise NotConnected(text, refused=False, remedy=remedy) from error

    def _opened(self, url: str) -> urllib3.PoolManager:
        """Not before it is needed: a file of TLS that is missing makes a place unreachable, and no command fail."""
        if self._pools is None:
            tls = self._tls() if url.startswith("https:") else None
            self._pools = urllib3.PoolManager(maxsize=_KEPT, ssl_context=tls)
        return self._pools

    def _tls(self) -> ssl.SSLContext:
        """The TLS context for all connections: reading the trusted certificates takes longer than a look."""
        context = ssl.create_default_context(cafile=self._verify if isinstance(self._verify, str) else None)
        if self._verify is False:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self._cert is not None:
            context.load_cert_chain(*self._cert)
        return context


def _body(reply: urllib3.BaseHTTPResponse, url: str, until: float, timeout_s: float, most: int) -> bytearray:
    body = bytearray()
    try:
        while len(body) <= most and (chunk := reply.read1(_CHUNK, decode_content=True)):
            body += chunk
            # A trickling answer keeps the limit of every read and still never ends.
            if growing_s() > until:
                raise TimedOut(f"{url}: the answer came too slowly")
    except TimeoutError as error:
        raise TimedOut(f"{url}: no answer within {timeout_s:g} s") from error
    except HTTPError as error:
        raise Torn(f"{url}: the answer could not be read: {error}") from error
    return body  # not copied: of ten thousand queues it is megabytes
