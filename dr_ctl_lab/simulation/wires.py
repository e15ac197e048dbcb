"""HTTP over the network in memory, as an adapter of `requests`."""

import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from dr_ctl_lab.twin.console import HttpRequest, HttpResponse
from dr_ctl_lab.twin.network import Network, NotConnected


class SimulatedWires(Network):
    """Implements `NetworkAccess`."""

    def adapter(self) -> BaseAdapter:
        return _Adapter(self)


class _Adapter(BaseAdapter):
    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        del stream, verify, cert, proxies
        url = urlsplit(str(request.url))
        data = request.body if isinstance(request.body, str | bytes) else b""
        body = data.encode() if isinstance(data, str) else data
        headers = {name.lower(): str(text) for name, text in request.headers.items()}
        http_request = HttpRequest(str(request.method), url.path, headers, body)
        connect_s, answer_s = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        try:
            response = self._network.send(
                str(url.hostname), url.port or 80, http_request, connect_s=connect_s, answer_s=answer_s
            )
        except NotConnected as error:
            raise requests.ConnectTimeout(error, request=request) from error
        except TimeoutError as error:
            raise requests.ReadTimeout(error, request=request) from error
        except OSError as error:
            raise requests.ConnectionError(error, request=request) from error
        return _reply(request, response)

    def close(self) -> None:
        """Do nothing: there are no connections."""


class _Raw(io.BytesIO):
    def read1(self, size: int | None = -1, *, decode_content: bool = False) -> bytes:
        del decode_content
        return super().read1(-1 if size is None else size)


def _reply(request: requests.PreparedRequest, response: HttpResponse) -> requests.Response:
    reply = requests.Response()
    reply.status_code, reply.headers = response.status, CaseInsensitiveDict(response.headers)
    reply.raw, reply.request, reply.url = _Raw(response.body), request, str(request.url)
    return reply
