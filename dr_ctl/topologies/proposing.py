"""What `init` sees of two brokers before there are settings, and what a topology proposes to write into them. Pure.

A topology has a module `proposing` with its `PROPOSER`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from dr_ctl.core.model import Json
from dr_ctl.core.printable import if_known

NOT_CLIENTS: Final = re.compile(
    r"mirror|bridge|link|peer|cluster|replic|network|continuity|sync|agent|dr-?ctl|internal", re.IGNORECASE
)


class Family(Enum):
    ARTEMIS = "artemis"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class Door:
    """An acceptor or a transport connector. `from_brokers` counts the connections of other brokers."""

    name: str
    protocols: frozenset[str]
    port: int | None
    started: bool
    from_brokers: int = 0


@dataclass(frozen=True, slots=True)
class Probed:
    """A broker that answered at a management address. `signs` are the beans that were found, by the sign."""

    family: Family
    broker: str
    version: str
    doors: Sequence[Door]
    signs: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def has(self, sign: str) -> bool:
        return bool(self.signs.get(sign))


@dataclass(frozen=True, slots=True)
class Place:
    """One management address, and the broker there: None where it refuses connections. `host` is how clients would
    reach it, as far as that address tells."""

    site: str
    url: str
    host: str
    probed: Probed | None


@dataclass(frozen=True, slots=True)
class Key:
    """A line of the settings: key, value, and why that value. `sure` is False where only a person knows."""

    name: str
    value: Json
    why: str = ""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class SharedDoor:
    """A door of the link whose name does not say so. `own` is a door for the link alone, as the broker's
    configuration has it, and `key` what names it in the settings."""

    name: str
    own: str
    key: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """`why` says by what the topology was recognized; `brokers` are the keys of a broker beside those that all have, by
    site; `installation` those beside the sites. `shared` are the doors of the peers' links, by site, that clients may
    use too: no fence would keep them out there."""

    topology: str
    why: str
    brokers: Mapping[str, Sequence[Key]]
    installation: Sequence[Key] = ()
    shared: Mapping[str, SharedDoor] = field(default_factory=dict)


class Propose(Protocol):
    def __call__(self, here: Place, there: Place) -> Proposal | None:
        """What to write, if two such brokers are joined by this topology."""


@dataclass(frozen=True, slots=True)
class Proposer:
    """How a topology is recognized: the family of its brokers, the beans that it looks for, and what it proposes."""

    family: Family
    signs: Sequence[str]
    propose: Propose


@dataclass(frozen=True, slots=True)
class LinkDoors:
    """The doors that the peer's link comes in by, and whether that was seen, or is told by protocol alone."""

    names: tuple[str, ...]
    sure: bool = True

    def key(self, name: str, why: str) -> list[Key]:
        return [Key(name, list(self.names), why, self.sure)] if self.names else []

    def shared(self, own: str, key: str) -> SharedDoor | None:
        """The one whose name does not say that it is for brokers."""
        names = [name for name in self.names if not NOT_CLIENTS.search(name)]
        return SharedDoor(names[0], own, key) if names else None


def by_site(shared: Mapping[str, SharedDoor | None]) -> Mapping[str, SharedDoor]:
    return {site: door for site, door in shared.items() if door is not None}


def link_doors(here: Probed, there: Probed, *protocols: str) -> LinkDoors:
    """Find them: other brokers are connected there, or the name says so, or it is the only door that speaks nothing but
    one of these protocols. A door that is open at one site and closed at the other is for clients."""
    left = [door for door in here.doors if door.name not in moving(here, there)]
    connected = [door.name for door in left if door.from_brokers]
    named = [door.name for door in left if NOT_CLIENTS.search(door.name) and door.protocols != {"STOMP"}]
    speaking = [door.name for door in left if len(door.protocols) == 1 and door.protocols <= {*protocols}]
    if connected or named:
        return LinkDoors(tuple(connected or named))
    return LinkDoors(tuple(speaking), sure=False) if len(speaking) == 1 < len(here.doors) else LinkDoors(())


def moving(here: Probed, there: Probed) -> frozenset[str]:
    """The doors that are open at one site and closed at the other."""
    states = {door.name: door.started for door in there.doors}
    return frozenset(door.name for door in here.doors if states.get(door.name, door.started) is not door.started)


def clients(here: Probed, without: Sequence[str] = ()) -> Key:
    """The doors that clients use: all but the link's, and those whose names say that they are for something else."""
    others = [door for door in here.doors if door.name not in without]
    named = tuple(door.name for door in others if not NOT_CLIENTS.search(door.name))
    told = ", ".join(f"{door.name} speaks {'/'.join(sorted(door.protocols))}" for door in others if door.name in named)
    return Key("clients", list(named or [door.name for door in others]), f"what clients use: {told}", bool(named))


def stomp(place: Place, doors: Sequence[str]) -> Key | None:
    """A clients' door where greetings and the probe go."""
    if place.probed is None:
        return None
    speaking = [door for door in place.probed.doors if "STOMP" in door.protocols and door.name in doors and door.port]
    # A door that speaks nothing else is meant for it.
    speaking.sort(key=lambda door: len(door.protocols))
    if not speaking:
        return None
    why = f"{speaking[0].name}: where greetings and the probe go; stomp+ssl:// where it speaks TLS"
    return Key("stomp", f"stomp://{place.host}:{if_known(speaking[0].port)}", why)
