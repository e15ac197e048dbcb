"""Files that are torn inside: their footers are whole, their pages are not."""

from __future__ import annotations

from pathlib import Path


def tear(path: Path) -> None:
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    path.write_bytes(whole[:4] + b"\xff" * (footer - 4) + whole[footer:])
