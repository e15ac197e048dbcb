"""The running `lab load` commands of a lab: files in its directory name them, so that they end with the lab."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter, ValidationError

from dr_ctl.engine.runs import write_text
from dr_ctl_lab.lab.daemons import Process, end

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = "loads"
END_S: Final = 5.0


@contextmanager
def running(directory: Path) -> Iterator[None]:
    """Register this process as a load of the lab."""
    folder = directory / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    note = folder / str(os.getpid())
    write_text(note, json.dumps(asdict(Process.of_pid(os.getpid()))))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def end_all(directory: Path) -> None:
    """End all loads of the lab. Unreadable files are ignored."""
    for note in sorted((directory / FOLDER).glob("[0-9]*")):
        try:
            process = TypeAdapter(Process).validate_json(note.read_bytes())
        except (OSError, ValidationError):
            continue
        if process.pid != os.getpid():
            end(process, within_s=END_S)
