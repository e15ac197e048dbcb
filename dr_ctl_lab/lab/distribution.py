"""The brokers' distribution: fetched once with Maven by its coordinates, unpacked, kept in the cache."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.machine import PartMissing, no_java
from dr_ctl_lab.lab.cache import cache_dir, locked

if TYPE_CHECKING:
    from collections.abc import Sequence

FETCH_TIMEOUT_S = 600
REACHABLE = "See that `mvn` can reach a repository, then try again."
LEAST_JAVA = 17
ON_TWIN = " Or add `--on twin`: simulated brokers need neither Java nor Maven."


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A published archive, by what Maven calls it."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}:tar.gz:bin"

    @property
    def folder(self) -> str:
        return f"{self.artifact}-{self.version}"


ARTEMIS = Coordinates("org.apache.artemis", "apache-artemis", "2.56.0")


def obtain(what: Coordinates = ARTEMIS) -> Path:
    """Return the unpacked distribution. The user's Maven settings decide where it comes from.

    EnvironmentFault where Java or Maven is missing, or Maven cannot fetch it. Two labs that start at once fetch once.
    """
    need_java()
    home = cache_dir() / what.folder
    if home.is_dir():
        return home
    with locked(what.folder, within_s=FETCH_TIMEOUT_S):
        if not home.is_dir():  # another lab may have been quicker
            _fetch(what, home)
    return home


def need_java() -> None:
    """EnvironmentFault where no Java that the brokers can use is on the PATH."""
    java = shutil.which("java")
    if java is None:
        raise no_java("the brokers of a lab run on it", ON_TWIN)
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    version = told.partition('"')[2].partition(".")[0]
    if version.isdigit() and int(version) < LEAST_JAVA:
        raise EnvironmentFault(
            f"Java {version} is too old for the brokers", remedy=f"Put a Java {LEAST_JAVA} or later first on the PATH."
        )


def _fetch(what: Coordinates, home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{what.folder}-", dir=home.parent) as scratch:
        maven(str(what), ["dependency:copy", f"-Dartifact={what}", f"-DoutputDirectory={scratch}"], Path(scratch))
        archives = list(Path(scratch).glob("*.tar.gz"))
        if not archives:
            raise EnvironmentFault(f"Maven could not fetch {what}: it left no archive", remedy=REACHABLE)
        with tarfile.open(archives[0]) as archive:
            archive.extractall(scratch, filter="data")
        unpacked = Path(scratch) / what.folder
        if not (unpacked / "bin").is_dir():
            raise EnvironmentFault(f"{what} does not hold {what.folder}/bin")
        unpacked.rename(home)  # appears whole or not at all


def maven(what: str, words: Sequence[str], scratch: Path) -> None:
    """Let Maven fetch something, working in `scratch`. EnvironmentFault where it is missing or cannot."""
    program = shutil.which("mvn")
    if program is None:
        text = f"there is no `mvn` on the PATH, and it fetches {what}, which is not in the cache"
        install = "`apt-get install maven` (Debian) or `dnf install maven` (Red Hat)"
        raise PartMissing(text, remedy=f"Install Maven: {install}.{ON_TWIN}")
    argv = [program, "--batch-mode", "--quiet", *words]
    try:
        done = subprocess.run(argv, cwd=scratch, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(f"Maven did not fetch {what} within {FETCH_TIMEOUT_S} s") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-600:]
        raise EnvironmentFault(f"Maven could not fetch {what}: {said}", remedy=REACHABLE)
