"""Jolokia of one broker: reads, patterns, operations, and errors as the real one words them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Protocol

from dr_ctl.core.notation import if_known
from dr_ctl_lab.twin import names
from dr_ctl_lab.twin.bean import ILLEGAL, Bean, Fails, Operations, signatures
from dr_ctl_lab.twin.parts import BrokerError

NO_BEAN: Final = "javax.management.InstanceNotFoundException"
NO_ATTRIBUTE: Final = "javax.management.AttributeNotFoundException"
REFUSED: Final = "java.lang.Exception"
TYPES: Final = frozenset({"read", "exec", "search", "version"})
# dr-ctl asks for rights with the name of a bean that does not exist, so that no call can change anything.
NO_SUCH_BEAN: Final = "=dr-ctl.nobody"
READING: Final = re.compile(r"(list|browse|count|get|is|canInvoke)")

_CONTROL: Final = re.compile(r"\\(?:(u00[01])([a-f])|.)")

Answer = dict[str, Any]


def _miswritten(escape: re.Match[str]) -> str:
    return escape[0] if escape[2] is None else f"\\{escape[1]}{chr(ord('0') + int(escape[2], 16))}"


@dataclass(frozen=True, slots=True)
class Dialect:
    """A console's version, path and peculiarities. `page` is shown at any other path. `forbids`: an attribute of a
    missing bean is forbidden, not missing. `refuses_in_json`: a malformed request gets an answer in JSON. `backs_off`:
    a user who fails too often has to wait. `servlet`: Jolokia behind a server that asks for the login, has no other
    page and demands an origin. `miswrites`: the last digit of a control character's escape is the character that far
    above '0', so that U+001B is written as `\\u001;`."""

    agent: str
    protocol: str
    product: str
    path: str
    page: str
    forbids: bool = False
    refuses_in_json: bool = False
    backs_off: bool = True
    servlet: bool = False
    miswrites: bool = False

    def written(self, document: Any) -> str:
        """The text of a JSON document, as this console writes it."""
        text = json.dumps(document)
        return _CONTROL.sub(_miswritten, text) if self.miswrites and "\\u00" in text else text


class Policy(Protocol):
    """A console's policy file."""

    @property
    def post_only(self) -> bool:
        """Say whether only POST is allowed."""

    def forbids_operation(self, bean: str, operation: str) -> bool: ...

    def forbids_attribute(self, bean: str, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Management:
    """A broker's beans, as its console offers them."""

    beans: Callable[[], Iterator[Bean]]
    dialect: Dialect
    version: str
    node: str
    policy: Callable[[], Policy] | None = None

    def request_refusal(self, method: str, origin: str | None) -> Answer | None:
        """The error for a request that is refused before its body is read."""
        if not self.dialect.servlet:
            return None
        if origin is None:
            return failed(REFUSED, "Origin null is not allowed to call this agent", 403)
        if self.policy is not None and self.policy().post_only and method != "POST":
            text = f"HTTP method {method.lower()} is not allowed according to the installed security policy"
            return failed(REFUSED, text, 403)
        return None


@dataclass(frozen=True, slots=True)
class Request:
    """A request as received; `changes` is true for an operation that may change something."""

    kind: str
    bean: str
    operation: str
    arguments: tuple[Any, ...]
    attributes: tuple[str, ...] | str | None
    ignore_errors: bool
    echo: Mapping[str, Any] | None

    @property
    def verb(self) -> str:
        return self.operation.partition("(")[0]

    @property
    def changes(self) -> bool:
        return self.kind == "exec" and READING.match(self.verb) is None and NO_SUCH_BEAN not in self.bean


class NotARequest(Exception):
    """The body is not a request; the whole POST is refused."""


def requests_in(body: Any) -> list[Request]:
    """Read a POST's document. NotARequest where it is none."""
    if not isinstance(body, list | dict):
        raise NotARequest("Invalid JSON Request. Expected Object or Array")
    return [_request(node) for node in (body if isinstance(body, list) else [body])]


def _request(body: Any) -> Request:
    kind = body.get("type") if isinstance(body, dict) else None
    if kind not in TYPES:
        raise NotARequest(f"No type with name '{if_known(kind)}' exists")
    config = body.get("config") or {}
    attributes = body.get("attribute")
    return Request(
        kind=kind,
        bean=str(body.get("mbean", "")),
        operation=str(body.get("operation", "")),
        arguments=tuple(body.get("arguments") or ()),
        attributes=tuple(attributes) if isinstance(attributes, list) else attributes,
        ignore_errors=config.get("ignoreErrors") in (True, "true"),
        echo={**{key: value for key, value in body.items() if key != "config"}, **_one_attribute(attributes)}
        if config.get("includeRequest", True) in (True, "true")
        else None,
    )


def _one_attribute(attributes: Any) -> dict[str, Any]:
    """The echo of a list with one attribute: the attribute itself."""
    return {"attribute": attributes[0]} if isinstance(attributes, list) and len(attributes) == 1 else {}


def answer(management: Management, request: Request) -> Answer:
    """Execute a request; a failure becomes an error answer."""
    try:
        reply = _KINDS[request.kind](management, request)
    except BrokerError as error:
        reply = failed(error.kind, error.text, error.status)
    except ValueError as error:
        reply = failed(ILLEGAL, f"Invalid object name. {error}", 400)
    return reply if request.echo is None else {"request": dict(request.echo), **reply}


def failed(kind: str, text: str, status: int) -> Answer:
    return {"error_type": kind, "error": f"{kind} : {text}", "status": status}


def _value(value: Any) -> Answer:
    return {"value": value, "status": 200}


def _version(management: Management, request: Request) -> Answer:
    del request
    info_row = {"agent": management.dialect.agent, "protocol": management.dialect.protocol}
    if management.dialect.servlet:
        info = {"product": management.dialect.product, "vendor": "Apache", "version": management.version}
        return _value({**info_row, "config": {"agentId": management.node, "agentType": "servlet"}, "info": info})
    details = {
        "server_product": management.dialect.product,
        "server_vendor": "Apache",
        "server_version": management.version,
    }
    return _value({**info_row, "details": details, "id": management.node})


def _search(management: Management, request: Request) -> Answer:
    return _value([_listed_name(bean.name) for bean in _matching_beans(management, request.bean)])


def _matching_beans(management: Management, name: str) -> list[Bean]:
    """The beans that match a name; the search for an exact name ends at the first match."""
    if names.is_pattern(name):
        return [bean for bean in management.beans() if names.matches(name, bean.name)]
    exact = names.canonical(name)
    return list(islice((bean for bean in management.beans() if names.canonical(bean.name) == exact), 1))


def _required(matching: list[Bean], request: Request, doing: str) -> list[Bean]:
    if not matching:
        pattern = names.is_pattern(request.bean)
        text = f"No MBean with pattern {request.bean} found for {doing}" if pattern else request.bean
        raise BrokerError(NO_BEAN, text, 404)
    return matching


def _read(management: Management, request: Request) -> Answer:
    wanted = request.attributes
    exact = not names.is_pattern(request.bean)
    keys = [wanted] if isinstance(wanted, str) else wanted
    matching = _matching_beans(management, request.bean)
    if management.dialect.forbids and exact and keys:
        # The console's guard forbids attributes that the bean, or a missing bean, does not have.
        known = matching[0].read() if matching else {}
        text = f"is forbidden for MBean {_listed_name(request.bean)}"
        forbidden = {key: f"Reading attribute {key} {text}" for key in keys if key not in known}
        if forbidden and not request.ignore_errors:
            raise BrokerError(REFUSED, next(iter(forbidden.values())), 403)
        if forbidden:
            refused = {key: f"ERROR: {text} (class java.lang.SecurityException)" for key, text in forbidden.items()}
            return _value({key: refused.get(key, known.get(key)) for key in keys})
    items = [_guarded(management, bean, keys, request) for bean in _required(matching, request, "reading attributes")]
    if not exact:
        # Missing attributes, and beans without any of the attributes, are left out.
        rows: dict[str, Any] = {}
        for bean in items:
            attributes = bean.read()
            if row := {key: _checked(attributes[key]) for key in keys or attributes if key in attributes}:
                rows[names.canonical(bean.name)] = row
        if not rows:
            text = f"No matching attributes [{', '.join(keys or ())}] found on MBeans "
            raise BrokerError(ILLEGAL, f"{text}[{', '.join(bean.name for bean in items)}]", 400)
        return _value(rows)
    attributes = items[0].read()
    if isinstance(wanted, str):
        if wanted not in attributes:
            raise BrokerError(NO_ATTRIBUTE, f"No such attribute: {wanted}", 404)
        return _value(_checked(attributes[wanted]))
    missing = [key for key in wanted or () if key not in attributes]
    if missing and not request.ignore_errors:
        raise BrokerError(NO_ATTRIBUTE, f"No such attribute: {missing[0]}", 404)
    missing_values = {key: _missing_attribute(management, key) for key in missing}
    return _value(
        {key: _checked(attributes[key]) for key in wanted or attributes if key in attributes} | missing_values
    )


def _checked(value: Any) -> Any:
    """Return the value, or raise the broker's error."""
    if isinstance(value, Fails):
        raise value.error
    return value


def _missing_attribute(management: Management, key: str) -> Any:
    if management.dialect.servlet:
        return f"ERROR: No such attribute: {key} (class {NO_ATTRIBUTE})"
    return {"error_type": NO_ATTRIBUTE, ".error": True, "error": f"No such attribute: {key}"}


def _guarded(management: Management, bean: Bean, keys: Sequence[str] | None, request: Request) -> Bean:
    """The bean as the policy shows it: one forbidden attribute fails the whole read."""
    policy = management.policy() if management.policy is not None else None
    if policy is None:
        return bean
    named = [key for key in keys or bean.read() if policy.forbids_attribute(bean.name, key)]
    text = f"is forbidden for MBean {names.canonical(bean.name)}"
    if named and not request.ignore_errors:
        raise BrokerError(REFUSED, f"Reading attribute {named[0]} {text}", 403)
    if not named:
        return bean
    hidden = {key: f"ERROR: Reading attribute {key} {text} (class java.lang.SecurityException)" for key in named}
    return replace(bean, read=lambda: {**bean.read(), **hidden})


def _listed_name(name: str) -> str:
    return name if name.count(",") == 0 else names.canonical(name)


def _execute(management: Management, request: Request) -> Answer:
    if management.dialect.forbids and names.is_pattern(request.bean):
        raise BrokerError(NO_BEAN, request.bean, 404)  # it takes a pattern for an exact name
    if management.policy is not None and management.policy().forbids_operation(request.bean, request.operation):
        text = f"Operation {request.operation} forbidden for MBean {names.canonical(request.bean)}"
        raise BrokerError(REFUSED, text, 403)
    result = _required(_matching_beans(management, request.bean), request, "invoking JMX operations")
    if not names.is_pattern(request.bean):
        return _value(_call(result[0], request))
    return _value({names.canonical(bean.name): _call(bean, request) for bean in result})


def _call(bean: Bean, request: Request) -> Any:
    arguments, offered = request.arguments, bean.offer()
    operation = request.operation if request.operation in offered else _overload(bean, request, offered)
    types = [kind for kind in operation.partition("(")[2][:-1].split(",") if kind]
    if len(arguments) < len(types):
        text = f"Invalid number of operation arguments. Operation {operation} on {request.bean} requires "
        raise BrokerError(ILLEGAL, f"{text}{len(types)} parameters, not {len(arguments)} as given", 400)
    return offered[operation](*map(_converted, types, arguments))


def _overload(bean: Bean, request: Request, offered: Operations) -> str:
    """The only operation of this name. Raises the broker's error where there is none, or several."""
    called, verb = names.canonical(bean.name), request.verb
    known = signatures(offered, verb)
    # The real one omits the first bracket of a signature without arguments.
    listed = ",".join(")" if name == "()" else name for name in known)
    if not known:
        raise BrokerError(ILLEGAL, f"No operation {verb} found on MBean {called}", 400)
    if "(" in request.operation:
        text = f"No operation {request.operation} on MBean {called} exists. Known signatures: {listed}"
        raise BrokerError(ILLEGAL, text, 400)
    if len(known) > 1:
        text = f"Operation {verb} on MBean {called} is overloaded. Signatures found: {listed}. "
        raise BrokerError(ILLEGAL, f"{text}Use a signature when specifying the operation.", 400)
    return f"{verb}{known[0]}"


def _converted(kind: str, argument: Any) -> Any:
    if kind in ("int", "long"):
        try:
            return int(argument)
        except ValueError as error:
            kind = "java.lang.NumberFormatException"
            raise BrokerError(kind, f'For input string: "{argument}"', 400) from error
    if kind == "boolean":
        return argument in (True, "true")
    return argument


_KINDS: Final[Mapping[str, Callable[[Management, Request], Answer]]] = {
    "version": _version,
    "search": _search,
    "read": _read,
    "exec": _execute,
}
