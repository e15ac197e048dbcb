"""Folders under STATE, which nobody else may look into. Of several new folders `mkdir` gives its mode to the last."""

from pathlib import Path


def private(folder: Path) -> None:
    """Make a folder, and each that is missing above it, for this user alone."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
