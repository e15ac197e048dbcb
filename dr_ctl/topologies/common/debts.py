"""Debts as documents on a broker. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from dr_ctl.core.errors import UNREADABLE
from dr_ctl.core.system import stamp
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.calls import remove_document, write_document

if TYPE_CHECKING:
    from dr_ctl.topologies.common.view import Broker

_NAME: Final = re.compile(rf"dr-ctl\.debt\.([^.]+)\.({'|'.join(kind.value for kind in DebtKind)})\.([^.]+)")


def document(kind: DebtKind, about: str, kept_at: str) -> str:
    """The name of the queue that holds a debt: the name contains the site that holds the debt."""
    return f"dr-ctl.debt.{kept_at}.{kind.value}.{about}"


def is_debt(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def debts_of(documents: Mapping[str, str]) -> list[Debt]:
    """Read the debts from a broker's documents. A document that cannot be read is a debt too."""
    debts = []
    for name, text in sorted(documents.items()):
        named = _NAME.fullmatch(name)
        if named is None:
            continue
        kept_at, kind, about = named.groups()
        try:
            document = json.loads(text)
            debts.append(Debt(DebtKind(kind), about, kept_at, str(document["since"]), bool(document["lasting"])))
        except UNREADABLE:
            debts.append(Debt(DebtKind(kind), about, kept_at, "not known"))
    return debts


def owe(view: Broker, kind: DebtKind, about: str, *, lasting: bool = False) -> tuple[Call, ...]:
    """Write a debt down at a broker, unless it stands there."""
    name = document(kind, about, view.site)
    return () if name in view.documents else (_write(view, kind, about, _text(view, lasting=lasting)),)


def owe_again(view: Broker, kind: DebtKind, about: str) -> Call:
    """Write a debt down that was struck, as it stood there; without what it said where that is not seen any more."""
    text = view.documents.get(document(kind, about, view.site)) or _text(view, lasting=False)
    return _write(view, kind, about, text, "it does not stand there")


def _text(view: Broker, *, lasting: bool) -> str:
    since = stamp(datetime.fromtimestamp(view.now_ms / 1000, UTC))
    return json.dumps({"since": since, "lasting": lasting})


def _write(view: Broker, kind: DebtKind, about: str, user: str, when: str | None = None) -> Call:
    text = f"record the {kind.value} debt of {about} at {view.site}"
    name = document(kind, about, view.site)
    return write_document(view, name, user, text, when)


def pay(view: Broker, kind: DebtKind, about: str, when: str | None = None) -> tuple[Call, ...]:
    """Take a debt's document away."""
    name = document(kind, about, view.site)
    text = f"clear the {kind.value} debt of {about} at {view.site}"
    return (remove_document(view, name, text, when),)
