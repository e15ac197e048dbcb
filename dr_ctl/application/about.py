"""What a run is about, for its journal: the installation with its addresses and objectives, and a digest of its
settings. No secret is in it."""

import hashlib
from contextlib import suppress

from dr_ctl.core.model import Json
from dr_ctl.settings.model import Installation, Objectives


def about(installation: Installation) -> dict[str, Json]:
    """The facts of the settings. `sha256` is null where the file is not there any more."""
    settings, digest = installation.settings, None
    with suppress(OSError):
        digest = hashlib.sha256(installation.file.read_bytes()).hexdigest()
    return {
        "name": settings.name,
        "topology": settings.topology,
        "settings": {"file": installation.file.name, "sha256": digest},
        "brokers": {
            site: [f"{pair} at {addresses[0]}" for pair, addresses in sorted(pairs.items())]
            for site, pairs in installation.addresses.items()
        },
        "objectives": None if settings.objectives is None else _limits(settings.objectives),
    }


def _limits(objectives: Objectives) -> dict[str, Json]:
    return {
        "recovery_s": objectives.recovery,
        "lost": objectives.loss.messages,
        "lost_age_s": objectives.loss.age,
        "duplicates": None if objectives.duplicates is None else objectives.duplicates.messages,
    }
