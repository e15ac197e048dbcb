"""The topologies there are, by the id that the settings name: what a command needs of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dr_ctl.core.clock import Clock
from dr_ctl.core.model import Json
from dr_ctl.rpo.row import Row
from dr_ctl.settings.model import Drain, Installation, Queues
from dr_ctl.topologies.artemis.showing import Carried
from dr_ctl.topologies.common.driver import Driver
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.verifier import Verifier


@dataclass(frozen=True, slots=True)
class Topology:
    """The parts of one topology. What they are made of is its own: whoever holds one does not look inside."""

    observer: Callable[[Installation, Clock, Callable[[float], object]], Observer[Any]]
    recipe: Callable[[Queues, Drain], Recipe[Any]]
    driver: Callable[[Any, Any, Sender], Driver[Any]]
    verifying: Callable[[Any, float], Verifier]
    link: Callable[[Any, Any, float], dict[str, Json]]
    lines: Callable[[Mapping[str, Json]], list[str]]
    rows: Callable[[Any, Any, datetime], list[Row]]
    carried: Callable[[Any, Any], Carried]
    # What the views of a returned site tell of what it still holds, and of what comes twice; None where they cannot.
    residue: Callable[[Iterable[Any]], dict[str, Json]] | None = None


def _mirror() -> Topology:
    from dr_ctl.topologies.mirror import access, procedure, showing, verifier  # noqa: PLC0415 - see `named`

    return Topology(
        observer=access.Observer,
        recipe=procedure.recipe,
        driver=procedure.driver,
        verifying=verifier.MirrorVerifier,
        link=showing.link,
        lines=showing.lines,
        rows=showing.rows,
        carried=showing.carried,
    )


def _continuity() -> Topology:
    from dr_ctl.topologies.continuity import access, procedure, showing, verifier  # noqa: PLC0415 - see `named`

    return Topology(
        observer=access.Observer,
        recipe=procedure.recipe,
        driver=procedure.driver,
        verifying=verifier.ContinuityVerifier,
        link=showing.link,
        lines=showing.lines,
        rows=showing.rows,
        carried=showing.carried,
        residue=showing.residue,
    )


_TOPOLOGIES: Final[Mapping[str, Callable[[], Topology]]] = {
    "artemis-mirror": _mirror,
    "artemis-continuity": _continuity,
}


def named(topology: str) -> Topology:
    """The topology of that id. Loaded only now: a command pays for the one that it drives."""
    return _TOPOLOGIES[topology]()


def of(installation: Installation) -> Topology:
    """The topology that an installation names."""
    return named(installation.settings.topology)
