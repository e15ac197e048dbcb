"""The address of a shared database, read strictly: a secret, so that no error may quote a part of it.

Drivers quote what they cannot read, and a password with an unencoded `%` or `/` is just that. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from dr_ctl.core.errors import UsageError

_CODED: Final = r"%[0-9A-Fa-f]{2}"
_USER: Final = rf"(?:[^:@/?#\[\]%\x00-\x20]|{_CODED})*"
_PASSWORD: Final = rf"(?:[^@/?#\[\]%\x00-\x20]|{_CODED})*"
_HOST: Final = rf"(?:\[[0-9A-Fa-f:.]+\]|(?:[\w.-]|{_CODED})+)(?::\d{{1,5}})?"
_PAIR: Final = rf"[a-z_]+=(?:[^&@#%\x00-\x20]|{_CODED})*"
_DSN: Final = re.compile(
    rf"(?P<scheme>[a-z]+)://(?:(?P<user>{_USER})(?::(?P<password>{_PASSWORD}))?@)?(?P<hosts>(?:{_HOST}(?:,{_HOST})*)?)"
    rf"(?:/(?P<name>{_USER}))?(?:\?{_PAIR}(?:&{_PAIR})*)?"
)
LAST_PORT: Final = 65535


class NotADsn(UsageError):
    remedy = (
        "As in `postgresql://user:password@host:5432/name`; encode what is neither a letter nor a digit in user and "
        "password, as %25 for a percent sign, %2F for a slash, %40 for an at sign."
    )


@dataclass(frozen=True, slots=True)
class Dsn:
    """An address that every driver reads as it is meant. `text` is the whole of it, a secret."""

    text: str
    scheme: str
    user: str
    password: str
    hosts: tuple[tuple[str, int | None], ...]
    name: str

    @classmethod
    def read(cls, text: str, schemes: tuple[str, ...]) -> Dsn:
        """Raises `NotADsn`, which quotes nothing."""
        found = _DSN.fullmatch(text.strip())
        if found is None:
            raise NotADsn("the address of the store's database cannot be read, and is not shown: it is a secret")
        if found["scheme"] not in schemes:
            begins = ", ".join(f"{each}://" for each in schemes)
            raise NotADsn(f"the address of the store's database begins with none of {begins}")
        hosts = tuple(_host(each) for each in found["hosts"].split(",") if each)
        if any(port is not None and port > LAST_PORT for _, port in hosts):
            raise NotADsn(f"the address of the store's database names a port above {LAST_PORT}")
        user, password, name = (unquote(found[each] or "") for each in ("user", "password", "name"))
        return cls(text.strip(), found["scheme"], user, password, hosts, name)

    def without_password(self, text: str) -> str:
        """A driver's words, should they hold the password after all."""
        coded = self.text.partition("://")[2].rpartition("@")[0].partition(":")[2]
        for each in filter(None, (self.password, coded)):
            text = text.replace(each, "***")
        return text


def _host(text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or (host.startswith("[") and not host.endswith("]")):
        host, port = text, ""
    return unquote(host.strip("[]")), int(port) if port else None
