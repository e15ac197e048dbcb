"""Requests to a broker's management: an operation of a bean with its arguments, and the same as it goes out."""

from dr_ctl.core.model import Json
from dr_ctl.engine.plan import Call
from dr_ctl.jolokia.client import Change
from dr_ctl.topologies.common.calls import Request, items


def request(bean: str, operation: str, arguments: tuple[Json, ...] = ()) -> Request:
    """Make a request with the operation's whole signature, because brokers overload names between versions."""
    return {"bean": bean, "operation": operation, "arguments": [*arguments]}


def arguments_of(asked: Request) -> list[Json]:
    return items(asked, "arguments")


def change(call: Call) -> Change:
    """The request of a call as it goes out."""
    asked = call.request
    return Change(str(asked["bean"]), str(asked["operation"]), tuple(arguments_of(asked)))
