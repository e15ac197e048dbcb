"""Figures of single queues, added up by scope and by look at the outflow that serves them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from dr_ctl.rpo.core.columns import Flags, Ints


@dataclass(frozen=True, slots=True)
class Sums:
    """The queues of each scope (the first is the total) added up by look: of the interval that ends with it, or of the
    look itself. `queues`: how many were counted; `unknown` of a figure: at least one of them does not tell it."""

    queues: Ints
    loss: Ints
    loss_unknown: Flags
    age: Ints
    duplicates: Ints
    duplicates_unknown: Flags
    is_floor: Flags

    @classmethod
    def none(cls, scopes: int, looks: int) -> Self:
        flags = ("loss_unknown", "duplicates_unknown", "is_floor")
        kinds = {each.name: bool if each.name in flags else np.int64 for each in fields(cls)}
        return cls(**{name: np.zeros((scopes, looks), kind) for name, kind in kinds.items()})

    def add(self, other: Self) -> None:
        """Add other queues."""
        for each in fields(self):
            mine, more = getattr(self, each.name), getattr(other, each.name)
            if mine.dtype == bool:
                np.logical_or(mine, more, out=mine)
            elif each.name == "age":
                np.maximum(mine, more, out=mine)
            else:
                np.add(mine, more, out=mine)

    def rows(self, what: str) -> dict[str, Any]:
        """Columns by scope and place, of those that say something."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        scope, place = np.nonzero(np.logical_or.reduce([each != 0 for each in told.values()]))
        values = {name: each[scope, place].astype(np.int64) for name, each in told.items()}
        return {"what": [what] * len(scope), "scope": scope, "place": place, **values}

    def take(self, scope: Ints, place: Ints, values: Mapping[str, Ints]) -> None:
        """Add such columns."""
        for name, more in values.items():
            mine = getattr(self, name)
            how = np.logical_or if mine.dtype == bool else np.maximum if name == "age" else np.add
            how.at(mine, (scope, place), more.astype(mine.dtype))


@dataclass(frozen=True, slots=True)
class OfQueues:
    """Figures of single queues: at which place they count, in how many places up to it, and which are not known."""

    place: Ints
    row: Ints
    wide: Ints
    loss: Ints
    loss_known: Flags
    age: Ints
    duplicates: Ints
    duplicates_known: Flags
    is_floor: Flags


def added_up(rows: OfQueues, counts: Flags, looks: int) -> Sums:
    """Add up by scope and place. Queues that were looked at alike are added up first, and spread over places then: an
    interval in which the outflow was looked at more often than the queue counts in each of its parts."""
    scopes = len(counts)
    found = Sums.none(scopes, looks)
    spread = Spread.of(rows.place, rows.wide, looks)
    at, many = spread.at, spread.many
    loss, duplicates = rows.loss * rows.loss_known, rows.duplicates * rows.duplicates_known
    for scope in range(scopes):
        inside = counts[scope][rows.row]
        is_all = bool(inside.all())
        place = at if is_all else at[inside]

        def added(values: Ints | Flags, place: Ints = place, inside: Flags = inside, *, is_all: bool = is_all) -> Any:
            return np.bincount(place, values if is_all else values[inside], many)

        # Queues left out count nothing in the total, and were read.
        sums = {
            "queues": np.bincount(at if scope == 0 else place, minlength=many),
            "loss": added(loss),
            "duplicates": added(duplicates),
            "loss_unknown": added(~rows.loss_known) > 0,
            "duplicates_unknown": added(~rows.duplicates_known) > 0,
            "is_floor": added(rows.is_floor) > 0,
        }
        age = np.zeros(many, np.int64)
        some = np.flatnonzero(inside & (rows.age > 0) & rows.loss_known)
        np.maximum.at(age, at[some], rows.age[some])
        for name, values in {**sums, "age": age}.items():
            getattr(found, name)[scope] = spread.longest(values) if name == "age" else spread.over(values)
    return found


@dataclass(frozen=True, slots=True)
class Spread:
    """Stretches of places: which of so `many` each row is of (`at`), how many places are in each (`wide`), and all
    places of all (`place`), each of the stretch `again`; a stretch is its place where none is wider than one."""

    at: Ints
    many: int
    wide: Ints
    again: Ints
    place: Ints
    looks: int

    @classmethod
    def of(cls, place: Ints, wide: Ints, looks: int) -> Self:
        """Of rows, the last place of each and how many places up to it; `looks` places in all."""
        widest = int(wide.max(initial=1))
        every = np.arange(looks)
        if widest <= 1:
            return cls(place, looks, np.ones(looks, np.int64), every, every, looks)
        stretch, at = np.unique(place * (widest + 1) + wide, return_inverse=True)
        last, wide = stretch // (widest + 1), stretch % (widest + 1)
        again = np.repeat(np.arange(len(wide)), wide)
        back = np.arange(len(again)) - np.repeat(np.cumsum(wide) - wide, wide)
        return cls(at, len(stretch), wide, again, last[again] - back, looks)

    def over(self, values: Any) -> Any:
        """What stretches hold, added up by place."""
        return np.bincount(self.place, values[self.again], self.looks)

    def longest(self, values: Ints) -> Ints:
        """What stretches hold, the largest by place."""
        found = np.zeros(self.looks, np.int64)
        np.maximum.at(found, self.place, values[self.again])
        return found
