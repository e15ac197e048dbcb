"""The JVM's archive of Spark's classes (class-data sharing): made once for each JVM and pyspark, then mapped at start.

Loading classes is most of the time that a short piece of Spark work takes. The archive lies in the user's cache
directory (`DR_CTL_CACHE` names another); it is made at the end of a session that may take the time, under another name
until it is whole. A JVM that cannot use it goes on without.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from platformdirs import user_cache_dir

KEPT: Final = 3
"""Archives of other versions that stay: someone may go back to one."""


def place(pyspark: str, jars: Path, *, compiles: bool = True) -> Path | None:
    """Where the archive for this JVM and these classes is, or would be; None where it cannot be kept.

    Work that compiles its plans loads other classes than work that does not: each has its own.
    """
    java = _java()
    if java is None:
        return None
    told = java.stat()
    words = [str(java), str(told.st_size), str(told.st_mtime_ns), pyspark, str(jars), str(compiles), _release(java)]
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("DR_CTL_CACHE") or user_cache_dir("dr-ctl")) / "spark-classes"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None  # no cache is no obstacle, only slower
    return folder / f"{key}.jsa"


def fresh(archive: Path) -> Path:
    """The name under which it is made: nobody maps half of one."""
    return archive.with_name(f".{archive.stem}.{os.getpid()}.jsa")


def settle(made: Path, archive: Path, *, is_whole: bool) -> None:
    """Give an archive its name, or remove what is left of one; of older ones the newest few stay."""
    if not (is_whole and made.exists()):
        made.unlink(missing_ok=True)
        return
    made.replace(archive)
    others = sorted(archive.parent.glob("[!.]*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in [path for path in others if path != archive][KEPT:]:
        old.unlink(missing_ok=True)


def _java() -> Path | None:
    """The program that Spark will start: as its own scripts choose it."""
    home = os.environ.get("JAVA_HOME")
    told = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if told is None:
        return None
    path = Path(told)
    return path.resolve() if path.exists() else None


def _release(java: Path) -> str:
    """What the JVM says of its own version, without starting it."""
    try:
        return (java.parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
