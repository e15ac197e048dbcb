"""A plugin of mypy: an f-string has no value that may be None; `if_known` of `core.notation` writes unknown values.

Values of JSON have no such type; tests check the outputs for them.
"""

from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from mypy.plugin import MethodContext, Plugin
from mypy.types import Instance, NoneType, Type, UnionType, get_proper_type

PACKAGES: Final = {"dr_ctl", "dr_ctl_lab"}
CONTAINERS: Final = ("builtins.list", "builtins.dict")


class NoNone(Plugin):
    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """An f-string is a call of `str.format` to mypy."""
        return _made if fullname == "builtins.str.format" else None


def _made(context: MethodContext) -> Type:
    if PACKAGES & {*PurePath(getattr(context.api, "path", "")).parts}:
        for types, values in zip(context.arg_types, context.args, strict=True):
            for type_, value in zip(types, values, strict=True):
                if _may_be_none(type_):
                    context.api.fail("a text is made of a value that may be None: use `if_known`", value)
    return context.default_return_type


def _may_be_none(type_: Type) -> bool:
    proper = get_proper_type(type_)
    if not isinstance(proper, UnionType):
        return isinstance(proper, NoneType)
    parts = [get_proper_type(item) for item in proper.items]
    if any(isinstance(part, Instance) and part.type.fullname in CONTAINERS for part in parts):
        return False
    return any(isinstance(part, NoneType) for part in parts)


def plugin(version: str) -> type[Plugin]:
    del version
    return NoNone
