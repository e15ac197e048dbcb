"""Requests of Jolokia answered for one broker: reads, patterns, operations, and every error in its real shape."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Protocol

from dr_ctl.core.notation import if_known
from dr_ctl_lab.twin import names
from dr_ctl_lab.twin.bean import ILLEGAL, Bean, Fails, Operations, signatures
from dr_ctl_lab.twin.parts import BrokerSaysNo

NO_BEAN: Final = "javax.management.InstanceNotFoundException"
NO_ATTRIBUTE: Final = "javax.management.AttributeNotFoundException"
REFUSED: Final = "java.lang.Exception"
TYPES: Final = frozenset({"read", "exec", "search", "version"})
# A question about a right names a bean that does not exist, so that no call can change anything.
NOBODY: Final = "=dr-ctl.nobody"
LOOKING: Final = re.compile(r"(list|browse|count|get|is|canInvoke)")

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
        """Say whether no other method is let in."""

    def forbids_operation(self, bean: str, operation: str) -> bool: ...

    def forbids_attribute(self, bean: str, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Management:
    """The objects that a console manages, and their rules."""

    beans: Callable[[], Iterator[Bean]]
    dialect: Dialect
    version: str
    node: str
    policy: Callable[[], Policy] | None = None

    def why_not_let_in(self, method: str, origin: str | None) -> Answer | None:
        """Refuse a POST, or any other request, before it is read."""
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
        return self.kind == "exec" and LOOKING.match(self.verb) is None and NOBODY not in self.bean


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
    """A list of one is echoed without its list."""
    return {"attribute": attributes[0]} if isinstance(attributes, list) and len(attributes) == 1 else {}


def answer(at: Management, request: Request) -> Answer:
    """Do a request; a failure is an answer too."""
    try:
        reply = _KINDS[request.kind](at, request)
    except BrokerSaysNo as error:
        reply = failed(error.kind, error.text, error.status)
    except ValueError as error:
        reply = failed(ILLEGAL, f"Invalid object name. {error}", 400)
    return reply if request.echo is None else {"request": dict(request.echo), **reply}


def failed(kind: str, text: str, status: int) -> Answer:
    return {"error_type": kind, "error": f"{kind} : {text}", "status": status}


def _value(value: Any) -> Answer:
    return {"value": value, "status": 200}


def _version(at: Management, request: Request) -> Answer:
    del request
    info_row = {"agent": at.dialect.agent, "protocol": at.dialect.protocol}
    if at.dialect.servlet:
        info = {"product": at.dialect.product, "vendor": "Apache", "version": at.version}
        return _value({**info_row, "config": {"agentId": at.node, "agentType": "servlet"}, "info": info})
    details = {"server_product": at.dialect.product, "server_vendor": "Apache", "server_version": at.version}
    return _value({**info_row, "details": details, "id": at.node})


def _search(at: Management, request: Request) -> Answer:
    return _value([_as_told(bean.name) for bean in _meant(at, request.bean)])


def _meant(at: Management, name: str) -> list[Bean]:
    """The beans that a name means; an exact one means one, and the others are not asked for."""
    if names.is_pattern(name):
        return [bean for bean in at.beans() if names.matches(name, bean.name)]
    exact = names.canonical(name)
    return list(islice((bean for bean in at.beans() if names.canonical(bean.name) == exact), 1))


def _found(meant: list[Bean], request: Request, doing: str) -> list[Bean]:
    if not meant:
        pattern = names.is_pattern(request.bean)
        text = f"No MBean with pattern {request.bean} found for {doing}" if pattern else request.bean
        raise BrokerSaysNo(NO_BEAN, text, 404)
    return meant


def _read(at: Management, request: Request) -> Answer:
    wanted = request.attributes
    exact = not names.is_pattern(request.bean)
    keys_of = [wanted] if isinstance(wanted, str) else wanted
    meant = _meant(at, request.bean)
    if at.dialect.forbids and exact and keys_of:
        # The guard knows no attribute of a missing bean, and so forbids reading.
        known = meant[0].read() if meant else {}
        text = f"is forbidden for MBean {_as_told(request.bean)}"
        forbidden = {key: f"Reading attribute {key} {text}" for key in keys_of if key not in known}
        if forbidden and not request.ignore_errors:
            raise BrokerSaysNo(REFUSED, next(iter(forbidden.values())), 403)
        if forbidden:
            refused = {key: f"ERROR: {text} (class java.lang.SecurityException)" for key, text in forbidden.items()}
            return _value({key: refused.get(key, known.get(key)) for key in keys_of})
    items = [_guarded(at, bean, keys_of, request) for bean in _found(meant, request, "reading attributes")]
    if not exact:
        # Missing attributes are left out, and so is a bean with none of the attributes.
        keys = keys_of
        rows: dict[str, Any] = {}
        for bean in items:
            attributes = bean.read()
            if row := {key: _told(attributes[key]) for key in keys or attributes if key in attributes}:
                rows[names.canonical(bean.name)] = row
        if not rows:
            text = f"No matching attributes [{', '.join(keys or ())}] found on MBeans "
            raise BrokerSaysNo(ILLEGAL, f"{text}[{', '.join(bean.name for bean in items)}]", 400)
        return _value(rows)
    attributes = items[0].read()
    if isinstance(wanted, str):
        if wanted not in attributes:
            raise BrokerSaysNo(NO_ATTRIBUTE, f"No such attribute: {wanted}", 404)
        return _value(_told(attributes[wanted]))
    missing = [key for key in wanted or () if key not in attributes]
    if missing and not request.ignore_errors:
        raise BrokerSaysNo(NO_ATTRIBUTE, f"No such attribute: {missing[0]}", 404)
    gaps = {key: _gap(at, key) for key in missing}
    return _value({key: _told(attributes[key]) for key in wanted or attributes if key in attributes} | gaps)


def _told(value: Any) -> Any:
    """The value of a read; raises the broker's error."""
    if isinstance(value, Fails):
        raise value.error
    return value


def _gap(at: Management, key: str) -> Any:
    if at.dialect.servlet:
        return f"ERROR: No such attribute: {key} (class {NO_ATTRIBUTE})"
    return {"error_type": NO_ATTRIBUTE, ".error": True, "error": f"No such attribute: {key}"}


def _guarded(at: Management, bean: Bean, keys: Sequence[str] | None, request: Request) -> Bean:
    """The bean as the policy shows it: a forbidden attribute forbids all attributes of the same read."""
    policy = at.policy() if at.policy is not None else None
    if policy is None:
        return bean
    named = [key for key in keys or bean.read() if policy.forbids_attribute(bean.name, key)]
    text = f"is forbidden for MBean {names.canonical(bean.name)}"
    if named and not request.ignore_errors:
        raise BrokerSaysNo(REFUSED, f"Reading attribute {named[0]} {text}", 403)
    if not named:
        return bean
    hidden = {key: f"ERROR: Reading attribute {key} {text} (class java.lang.SecurityException)" for key in named}
    return replace(bean, read=lambda: {**bean.read(), **hidden})


def _as_told(name: str) -> str:
    return name if name.count(",") == 0 else names.canonical(name)


def _execute(at: Management, request: Request) -> Answer:
    if at.dialect.forbids and names.is_pattern(request.bean):
        raise BrokerSaysNo(NO_BEAN, request.bean, 404)  # for it that is a name like any other
    if at.policy is not None and at.policy().forbids_operation(request.bean, request.operation):
        text = f"Operation {request.operation} forbidden for MBean {names.canonical(request.bean)}"
        raise BrokerSaysNo(REFUSED, text, 403)
    result = _found(_meant(at, request.bean), request, "invoking JMX operations")
    if not names.is_pattern(request.bean):
        return _value(_call(result[0], request))
    return _value({names.canonical(bean.name): _call(bean, request) for bean in result})


def _call(bean: Bean, request: Request) -> Any:
    arguments, offered = request.arguments, bean.offer()
    operation = request.operation if request.operation in offered else _overload(bean, request, offered)
    kinds = [kind for kind in operation.partition("(")[2][:-1].split(",") if kind]
    if len(arguments) < len(kinds):
        text = f"Invalid number of operation arguments. Operation {operation} on {request.bean} requires "
        raise BrokerSaysNo(ILLEGAL, f"{text}{len(kinds)} parameters, not {len(arguments)} as given", 400)
    return offered[operation](*map(_as, kinds, arguments))


def _overload(bean: Bean, request: Request, offered: Operations) -> str:
    """The only operation of this name. Raises the broker's error where there is none, or several."""
    called, verb = names.canonical(bean.name), request.verb
    known = signatures(offered, verb)
    # The real one drops the first bracket of a signature without arguments.
    listed = ",".join(")" if name == "()" else name for name in known)
    if not known:
        raise BrokerSaysNo(ILLEGAL, f"No operation {verb} found on MBean {called}", 400)
    if "(" in request.operation:
        text = f"No operation {request.operation} on MBean {called} exists. Known signatures: {listed}"
        raise BrokerSaysNo(ILLEGAL, text, 400)
    if len(known) > 1:
        text = f"Operation {verb} on MBean {called} is overloaded. Signatures found: {listed}. "
        raise BrokerSaysNo(ILLEGAL, f"{text}Use a signature when specifying the operation.", 400)
    return f"{verb}{known[0]}"


def _as(kind: str, argument: Any) -> Any:
    if kind in ("int", "long"):
        try:
            return int(argument)
        except ValueError as error:
            kind = "java.lang.NumberFormatException"
            raise BrokerSaysNo(kind, f'For input string: "{argument}"', 400) from error
    if kind == "boolean":
        return argument in (True, "true")
    return argument


_KINDS: Final[Mapping[str, Callable[[Management, Request], Answer]]] = {
    "version": _version,
    "search": _search,
    "read": _read,
    "exec": _execute,
}
