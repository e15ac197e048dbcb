"""The brokers' distribution: fetched once with Maven, unpacked, kept in the cache."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.machine import PartMissing, no_java
from dr_ctl_lab.lab.cache import cache_dir, locked

if TYPE_CHECKING:
    from collections.abc import Sequence

FETCH_TIMEOUT_S = 600
REACHABLE = "See that `mvn` can reach a repository, then try again."
MIN_JAVA = 17
ON_TWIN = " Or add `--on twin`: simulated brokers need neither Java nor Maven."


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The Maven coordinates of a published archive."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}:tar.gz:bin"

    @property
    def folder(self) -> str:
        return f"{self.artifact}-{self.version}"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers, for comparisons. UsageError where it has none."""
        if not (matches := re.findall(r"\d+", self.version)):
            raise UsageError(
                f"{self.version!r} is no version of the brokers", remedy="As in `--broker-version 2.40.0`."
            )
        return tuple(map(int, matches))

    def at(self, version: str) -> Coordinates:
        """The same archive in another version; an empty text means this one. The group of Artemis is new since 2.50."""
        if not version:
            return self
        other = replace(self, version=version)
        if self.artifact != ARTEMIS.artifact:
            return other
        return replace(other, group="org.apache.artemis" if other.numbers >= NEW_GROUP_SINCE else "org.apache.activemq")


NEW_GROUP_SINCE = (2, 50)
# Not every registry has the archives of Classic 6. Its jars are enough: Jolokia runs without the web server, and no web
# console is needed.
CLASSIC, IN_JARS = "apache-activemq", (6,)
CLASSIC_PARTS = (
    "broker", "kahadb-store", "jdbc-store", "jaas", "stomp", "amqp", "mqtt", "openwire-legacy", "spring", "console",
)  # fmt: skip
CLASSIC_DEPENDENCIES = (
    ("org.springframework", "spring-context", "7.0.8", ""),
    ("org.apache.logging.log4j", "log4j-slf4j2-impl", "2.26.1", ""),
    ("org.apache.commons", "commons-dbcp2", "2.14.0", ""),
    ("com.thoughtworks.xstream", "xstream", "1.4.21", ""),  # both for advisories over STOMP
    ("org.codehaus.jettison", "jettison", "1.5.7", ""),
    ("org.jolokia", "jolokia-agent-jvm", "2.6.0", ""),
)


def jars_of_classic(coordinates: Coordinates) -> Sequence[tuple[str, str, str, str]]:
    jars = [(coordinates.group, f"activemq-{part}", coordinates.version, "") for part in CLASSIC_PARTS]
    return [*jars, *CLASSIC_DEPENDENCIES]


ARTEMIS = Coordinates("org.apache.artemis", "apache-artemis", "2.56.0")


def obtain(coordinates: Coordinates = ARTEMIS) -> Path:
    """Return the unpacked distribution; the user's Maven settings name the repository. EnvironmentFault where Java or
    Maven is missing, or Maven cannot fetch it."""
    need_java()
    home = cache_dir() / coordinates.folder
    if coordinates.artifact == CLASSIC and coordinates.numbers >= IN_JARS:
        return gather_jars(home, jars_of_classic(coordinates))
    if home.is_dir():
        return home
    with locked(coordinates.folder, within_s=FETCH_TIMEOUT_S):
        if not home.is_dir():  # another lab may have fetched it meanwhile
            _fetch(coordinates, home)
    return home


def gather_jars(home: Path, jars: Sequence[tuple[str, str, str, str]]) -> Path:
    """Return a folder with these jars and their dependencies in `lib`. A jar is group, artifact, version and
    classifier. EnvironmentFault as `obtain`."""
    need_java()
    with locked(home.name, within_s=FETCH_TIMEOUT_S):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as scratch:
                project = Path(scratch)
                (project / "pom.xml").write_text(_pom(jars))
                maven(home.name, ["dependency:copy-dependencies", "-DoutputDirectory=home/lib"], project)
                (project / "home").rename(home)  # atomic
    return home


def _pom(jars: Sequence[tuple[str, str, str, str]]) -> str:
    """A project with all of them as dependencies, so that Maven resolves theirs too."""
    needed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{f'<classifier>{classifier}</classifier>' if classifier else ''}</dependency>"
        for group, artifact, version, classifier in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>dr-ctl</groupId><artifactId>lab</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{needed}</dependencies></project>"
    )


def need_java() -> None:
    """PartMissing without a Java of a sufficient version on the PATH."""
    java = shutil.which("java")
    if java is None:
        raise no_java("the brokers of a lab run on it", ON_TWIN)
    result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    version = result.partition('"')[2].partition(".")[0]
    if version.isdigit() and int(version) < MIN_JAVA:
        raise PartMissing(
            f"Java {version} is too old for the brokers", remedy=f"Put a Java {MIN_JAVA} or later first on the PATH."
        )


def _fetch(coordinates: Coordinates, home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{coordinates.folder}-", dir=home.parent) as scratch:
        maven(
            str(coordinates),
            ["dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={scratch}"],
            Path(scratch),
        )
        archives = list(Path(scratch).glob("*.tar.gz"))
        if not archives:
            raise EnvironmentFault(f"Maven could not fetch {coordinates}: it left no archive", remedy=REACHABLE)
        with tarfile.open(archives[0]) as archive:
            archive.extractall(scratch, filter="data")
        unpacked = Path(scratch) / coordinates.folder
        if not (unpacked / "bin").is_dir():
            raise EnvironmentFault(f"{coordinates} does not hold {coordinates.folder}/bin")
        unpacked.rename(home)  # atomic


def maven(coordinates: str, arguments: Sequence[str], scratch: Path) -> None:
    """Run Maven in `scratch`. EnvironmentFault where it is missing or fails."""
    program = shutil.which("mvn")
    if program is None:
        text = f"there is no `mvn` on the PATH, and it fetches {coordinates}, which is not in the cache"
        install = "`apt-get install maven` (Debian) or `dnf install maven` (Red Hat)"
        raise PartMissing(text, remedy=f"Install Maven: {install}.{ON_TWIN}")
    argv = [program, "--batch-mode", "--quiet", *arguments]
    try:
        done = subprocess.run(argv, cwd=scratch, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(f"Maven did not fetch {coordinates} within {FETCH_TIMEOUT_S} s") from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-600:]
        raise EnvironmentFault(f"Maven could not fetch {coordinates}: {output}", remedy=REACHABLE)
