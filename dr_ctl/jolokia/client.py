"""Requests to Jolokia and its answers. A reading of a broker is one POST, every refusal has a type, and a `Reader`
cannot change anything. `http` carries the bytes.

Only requests built here can be sent: attributes are always named, operations have their signature, and every request
names a bean (Jolokia answers a request without one with all beans).
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from dr_ctl.core.errors import LoginRefused, Sick, Throttled
from dr_ctl.core.model import Json
from dr_ctl.core.system import system
from dr_ctl.core.tls import TlsFiles
from dr_ctl.jolokia import http
from dr_ctl.jolokia.values import Fields

MAX_BYTES: Final = 64 * 1024 * 1024
READ_S: Final = 5.0
CHANGE_S: Final = 30.0
TRIES: Final = 3
_VANISHED_TEXTS: Final = ("IllegalArgumentException : No matching attributes", 'because "this.session" is null')
_TAKEN: Final = re.compile(r"AMQ229230: .* to \S*:(\d+)")
_HOLDER: Final = r"\g<0>; another process may hold port \1: `ss -ltnp` on the broker's host shows it"
_WITH_SIGNATURE: Final = re.compile(r"\w+\([\w.,\[\]$;]*\)")
_WRONG_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{3})([:-?])|.)")
_CONFIG: Final[dict[str, Json]] = {"ignoreErrors": True, "includeRequest": False, "canonicalNaming": True}


def _body(kind: str, bean: str, **fields: Json) -> dict[str, Json]:
    """Make the body of a request; raises ValueError for a name that is no bean's."""
    if ":" not in bean or "=" not in bean:
        raise ValueError(f"not the name of a bean: {bean!r}")
    return {"type": kind, "mbean": bean, **fields, "config": _CONFIG}


@dataclass(frozen=True, slots=True)
class Read:
    """Named attributes of one bean, or of all that a pattern matches."""

    bean: str
    attributes: tuple[str, ...]

    def body(self) -> dict[str, Json]:
        if not self.attributes:
            raise ValueError(f"name the attributes to read of {self.bean}")
        return _body("read", self.bean, attribute=list(self.attributes))


@dataclass(frozen=True, slots=True)
class Search:
    """Names of the beans that a pattern matches."""

    pattern: str

    def body(self) -> dict[str, Json]:
        return _body("search", self.pattern)


class Listing(Enum):
    """The operations that change nothing: a `Reader` can call no other."""

    CONNECTIONS = "listConnections(java.lang.String,int,int)"
    CONSUMERS = "listConsumers(java.lang.String,int,int)"
    PREPARED = "listPreparedTransactionDetailsAsJSON()"
    LOCK_COORDINATORS = "listLockCoordinatorsAsJSON()"
    BROWSE = "browse(int,int)"
    BROWSE_ALL = "browse()"
    COUNT = "countMessages(java.lang.String)"
    COUNT_BY = "countMessages(java.lang.String,java.lang.String)"
    SCHEDULED = "listScheduledMessagesAsJSON()"
    DELIVERING = "listDeliveringMessagesAsJSON()"
    ROLES = "getRolesAsJSON(java.lang.String)"
    ADDRESS_SETTINGS = "getAddressSettingsAsJSON(java.lang.String)"
    USERS = "listUser(java.lang.String)"
    TOPOLOGY = "listNetworkTopology()"
    MAY_CALL = "canInvoke(java.lang.String,java.lang.String,[Ljava.lang.String;)"


_OF_CLIENTS: Final = (Listing.CONNECTIONS, Listing.CONSUMERS)


@dataclass(frozen=True, slots=True)
class Query:
    bean: str
    listing: Listing
    arguments: tuple[Json, ...] = ()

    def body(self) -> dict[str, Json]:
        return _body("exec", self.bean, operation=self.listing.value, arguments=list(self.arguments))


@dataclass(frozen=True, slots=True)
class Change:
    """An operation that changes something, with its signature, because brokers overload names."""

    bean: str
    operation: str
    arguments: tuple[Json, ...] = ()

    def body(self) -> dict[str, Json]:
        if not _WITH_SIGNATURE.fullmatch(self.operation):
            raise ValueError(f"{self.operation!r} lacks its signature, as in pause() or stop(java.lang.String)")
        return _body("exec", self.bean, operation=self.operation, arguments=list(self.arguments))


# No bean has this name: an operation that is called there changes nothing.
NOBODY: Final = "dr-ctl.nobody"


@dataclass(frozen=True, slots=True)
class MayCall:
    """A test of the console's policy: the call of an operation at a bean that does not exist. Jolokia checks the policy
    first, so the answer is `NoSuchBean` if the policy permits the operation, else `PolicyRefused`."""

    bean: str
    operation: str

    def body(self) -> dict[str, Json]:
        if f"={NOBODY}" not in self.bean:
            raise ValueError(f"not a bean that never exists: {self.bean}")
        return _body("exec", self.bean, operation=self.operation, arguments=[])


@dataclass(slots=True)
class Answer:
    """A value or an error. A `Post` fills its answers when it is sent."""

    error: Exception | None
    _value: Any = None
    bean: str = ""

    def value(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._value

    def beans(self) -> list[tuple[str, Fields]]:
        """Return the beans that a pattern matched, maybe none; raise any other error."""
        if isinstance(self.error, http.NoSuchBean):
            return []
        rows = self.value()
        if not isinstance(rows, dict):
            raise http.BadValue("a read by pattern gave no beans")
        return [(bean, Fields(bean, row)) for bean, row in rows.items()]

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows of a listing; raises `Vanished` if there are fewer than the listing counts."""
        try:
            listing = json.loads(str(self.value()))
            rows, count = listing["data"], listing.get("count")
        except (ValueError, TypeError, KeyError) as error:
            raise http.BadValue("a listing gave no rows") from error
        if not isinstance(rows, list):
            raise http.BadValue("a listing gave no rows")
        if count is not None and count != len(rows):
            raise http.Vanished("a listing gave not all of its rows")
        return rows

    def fields(self) -> Fields:
        return Fields(self.bean, self.value())

    def fill(self, answer: Answer) -> None:
        self.error, self._value = answer.error, answer._value


@dataclass(frozen=True, slots=True)
class Account:
    """The address of a broker's management, and the login, if there is a name. No text shows the password."""

    url: str
    username: str
    password: str
    origin: str
    tls: TlsFiles = field(default_factory=TlsFiles)
    source: str = "the settings file"  # where the password comes from

    def __repr__(self) -> str:
        return f"Account({self.url!r}, {self.username!r})"


class Transport(Protocol):
    """`activation` identifies the present activation of a node; it is empty for a broker with one process."""

    @property
    def url(self) -> str: ...

    @property
    def activation(self) -> str: ...

    def post(self, bodies: Sequence[dict[str, Json]], timeout_s: float) -> list[Answer]:
        """Send all requests in one POST; returns their answers in order. Raises `BrokerError`."""

    def close(self) -> None: ...


class Wire:
    """A keep-alive connection to one broker. After a refused login no request is sent any more."""

    def __init__(self, account: Account) -> None:
        self._account, self.url = account, account.url
        headers = {"Content-Type": "application/json", "Origin": account.origin}
        if account.username:
            login = b64encode(f"{account.username}:{account.password}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        self._http = http.Http(headers, account.tls)
        self._refused: LoginRefused | None = None
        self.activation = ""

    def close(self) -> None:
        self._http.close()

    def post(self, bodies: Sequence[dict[str, Json]], timeout_s: float) -> list[Answer]:
        if self._refused is not None:
            raise self._refused
        url, body = self.url, json.dumps(list(bodies)).encode()
        reply = self._http.ask("POST", url, body=body, timeout_s=timeout_s, max_bytes=MAX_BYTES)
        if reply.status in (401, 403):
            remedy = (
                f"Its password comes from {self._account.source}. One attempt was made here; each command makes "
                "another, and repeated ones lock the account out: fix it before the next command."
            )
            if not (self._account.username + self._account.password).isascii():
                remedy += " It is sent as UTF-8, which Jetty reads as ISO 8859-1: one of ASCII letters is read alike."
            text = f"{url}: the login of {self._account.username} was refused (HTTP {reply.status})"
            self._refused = LoginRefused(text, remedy=remedy)
            raise self._refused
        return _answers(url, reply, len(bodies))


class Reader:
    """Sends requests that change nothing."""

    def __init__(self, wire: Transport) -> None:
        self._wire = wire

    @property
    def url(self) -> str:
        return self._wire.url

    @property
    def activation(self) -> str:
        return self._wire.activation

    def read(self, requests_: Sequence[Read | Search | Query | MayCall], *, timeout_s: float = READ_S) -> list[Answer]:
        """Return the answers of one POST, in order. The whole POST is repeated if a connection vanished during a
        listing."""
        bodies, answers = [request.body() for request in requests_], list[Answer]()
        until = system().monotonic() + timeout_s
        for _ in range(TRIES):
            answers = self._wire.post(bodies, timeout_s)
            timeout_s = until - system().monotonic()
            if timeout_s <= 0 or not any(map(_has_vanished, requests_, answers)):
                break
        return answers


def _has_vanished(request: Read | Search | Query | MayCall, answer: Answer) -> bool:
    try:
        answer.rows() if isinstance(request, Query) and request.listing in _OF_CLIENTS else answer.value()
    except http.Vanished:
        return True
    except http.ElementError:
        return False
    return False


def make_changes(wire: Transport, changes: Sequence[Change], *, timeout_s: float = CHANGE_S) -> list[Answer]:
    return wire.post([change.body() for change in changes], timeout_s)


def _answers(url: str, reply: http.HttpReply, expected: int) -> list[Answer]:
    status, body = reply.status, reply.body
    if status == 429:  # noqa: PLR2004
        after = reply.headers.get("Retry-After")
        wait = f"; try again after {after} s" if after else ""
        raise Throttled(f"{url}: logins are throttled (HTTP 429){wait}")
    if len(body) > MAX_BYTES:
        raise http.Torn(f"{url}: the answer is larger than {MAX_BYTES} bytes")
    start = body[:60].decode("utf-8", "replace").strip()
    try:
        text = body.decode()
        body.clear()  # the answer of ten thousand queues is megabytes, and so are its values
        rows = _json(text)
    except (ValueError, RecursionError) as error:
        if status >= 500:  # noqa: PLR2004
            raise Sick(f"{url}: HTTP {status} without JSON: {start!r}") from error
        if start[:1] in ("[", "{"):
            raise http.Torn(f"{url}: the JSON of the answer ends early or is damaged") from error
        raise http.NotJolokia(f"{url}: HTTP {status}, and no JSON but {start!r}") from error
    # One object without a value refuses the whole POST.
    if isinstance(rows, dict) and "value" not in rows and isinstance(rows.get("status"), int):
        rows = [rows] * expected
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "status" in row for row in rows):
        raise http.NotJolokia(f"{url}: HTTP {status}, and JSON that is not an answer of Jolokia")
    if status != 200 and any("value" in row for row in rows):  # noqa: PLR2004
        raise http.NotJolokia(f"{url}: HTTP {status}, and yet values")
    if len(rows) != expected:
        raise http.Torn(f"{url}: {expected} questions, {len(rows)} answers")
    return [_answer(url, row) for row in rows]


def _json(text: str) -> Any:
    """Read JSON, and control characters as Artemis 2.56 writes them: the last digit of the escape is not hexadecimal
    but the character that far above '0', so that U+001B stands there as `\\u001;`. No JSON has such an escape."""

    def rewritten(escape: re.Match[str]) -> str:
        return escape[0] if escape[2] is None else f"\\u{escape[1]}{ord(escape[2]) - ord('0'):x}"

    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_WRONG_ESCAPE.sub(rewritten, text))


def _answer(url: str, row: dict[str, Any]) -> Answer:
    status = row["status"]
    if status == 200 and "value" in row:  # noqa: PLR2004
        return Answer(None, row["value"])
    text = _TAKEN.sub(_HOLDER, f"{url}: {row.get('error', 'no reason given')}")
    missing = str(row.get("error_type", "")).endswith(("InstanceNotFoundException", "AttributeNotFoundException"))
    if status == 403:  # noqa: PLR2004
        return Answer(http.PolicyRefused(text))
    if any(sign in text for sign in _VANISHED_TEXTS):
        return Answer(http.Vanished(text))
    return Answer(http.NoSuchBean(text) if missing or status == 404 else http.OperationFailed(text))  # noqa: PLR2004


class Post:
    """Collects requests and sends them together, in order."""

    def __init__(self) -> None:
        self._requests: list[tuple[Read | Search | Query | MayCall, Answer]] = []

    def ask(self, request: Read | Search | Query | MayCall) -> Answer:
        bean = request.pattern if isinstance(request, Search) else request.bean
        answer = Answer(RuntimeError(f"this request was never sent: {request}"), bean=bean)
        self._requests.append((request, answer))
        return answer

    def send(self, reader: Reader, *, timeout_s: float = READ_S) -> None:
        """Send all requests in one POST; an error is raised when its answer is read."""
        answers = reader.read([request for request, _ in self._requests], timeout_s=timeout_s)
        for (_, empty), answer in zip(self._requests, answers, strict=True):
            empty.fill(answer)
