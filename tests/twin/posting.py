"""Documents to a console as they are, past what the product would send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests

from dr_ctl.core.system import system
from dr_ctl.stomp_io.address import Login


def post(url: str, body: Any, who: Login, headers: Mapping[str, str], *, raw: bool = False) -> requests.Response:
    """`raw`: a text, not a document. By the system's own wires, where it has some."""
    with requests.Session() as session:
        if (wires := system().wires) is not None:
            session.mount("http://", wires.adapter())
        told: dict[str, Any] = {"data": body} if raw else {"json": body}
        return session.post(url, auth=(who.user, who.password), headers=dict(headers), timeout=10, **told)
