"""The JVM's archive of Spark's classes (class-data sharing): made once for each JVM and pyspark, then mapped at start.

Loading classes is most of the time that a short piece of Spark work takes. The archive lies in the user's cache
directory (`DR_CTL_CACHE` names another); a session that may take the time makes the archive at its end, under another
name until the file is whole. A JVM that cannot use it goes on without.
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
    """The path of the archive for this JVM and these classes, existing or not. None where no archive can be kept.

    Work that compiles its plans loads other classes than work without, so there are two archives.
    """
    java = _java()
    if java is None:
        return None
    state = java.stat()
    words = [str(java), str(state.st_size), str(state.st_mtime_ns), pyspark, str(jars), str(compiles), _release(java)]
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
    """The Java program that Spark's own scripts would start."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return None
    path = Path(program)
    return path.resolve() if path.exists() else None


def _release(java: Path) -> str:
    """The JVM's version file, read without starting the JVM."""
    try:
        return (java.parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
