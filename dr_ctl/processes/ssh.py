"""Signs documents with a person's SSH key, and names the signer of a signature by a file of allowed signers.

OpenSSH's own `ssh-keygen` does both. A signature is bound to the namespace `dr-ctl`: signatures for mail or for git do
not count here.
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dr_ctl.core.document import HIDDEN, derived
from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.model import ExitCode

PROGRAM: Final = "ssh-keygen"
_NAMESPACE: Final = "dr-ctl"
_KEY: Final = re.compile(r" with (\S+ key \S+)\s*$", re.MULTILINE)
_VERIFIED_S: Final = 10.0
_SIGNED_S: Final = 120.0  # a person may have to type a passphrase, or to touch a token


class SshFailed(DrCtlError):
    exit_code = ExitCode.PRECHECK_FAILED
    remedy = "Install OpenSSH's client, version 8.9 or newer."


@dataclass(frozen=True, slots=True)
class Signer:
    """The person of a key in the file of allowed signers, with all `names`."""

    names: tuple[str, ...] = field(metadata=HIDDEN)
    key: str

    @derived
    def name(self) -> str:
        return self.names[0]


def sign(document: bytes, key: Path) -> str:
    """Sign with a private key, or with the agent's key of a public one; ssh-keygen may ask for a passphrase. Raises
    `SshFailed`."""
    signed = _run(["-Y", "sign", "-f", str(key), "-n", _NAMESPACE], document, _SIGNED_S)
    if signed.returncode != 0:
        raise SshFailed(f"{key}: {_last_line(signed)}", remedy="Name the file of an SSH key of yours: --key FILE.")
    return signed.stdout.decode("ascii", "replace")


def signer_of(document: bytes, signature: str, signers: Path) -> Signer | str:
    """Return the signer of a document, or the reason why the signature is not valid. Raises `SshFailed`."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "signature")
        file.write_text(signature, encoding="utf-8")
        listed = _run(["-Y", "find-principals", "-s", str(file), "-f", str(signers)], b"", _VERIFIED_S)
        names = tuple(listed.stdout.decode("utf-8", "replace").split())
        if listed.returncode != 0 or not names:
            return f"no signer of {signers.name} has signed it: {_last_line(listed)}"
        if any(mark in names[0] for mark in "*?!"):
            return f"{signers.name} has its key under {names[0]}, which is no person's name"
        arguments = ["-Y", "verify", "-f", str(signers), "-I", names[0], "-n", _NAMESPACE, "-s", str(file)]
        verified = _run(arguments, document, _VERIFIED_S)
    match = _KEY.search(verified.stdout.decode("utf-8", "replace"))
    if verified.returncode != 0 or match is None:
        return f"{names[0]}: {_last_line(verified)}"
    return Signer(names, match[1])


def _run(arguments: Sequence[str], stdin: bytes, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, timeout=timeout_s, check=False)
    except FileNotFoundError as error:
        raise SshFailed(f"{PROGRAM} is not installed, so nothing can be signed or verified") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SshFailed(f"{PROGRAM}: {error}", remedy="Run the command again.") from error


def _last_line(process: subprocess.CompletedProcess[bytes]) -> str:
    lines = process.stderr.decode("utf-8", "replace").split("\n")
    written = (line.strip() for line in reversed(lines) if line.strip())
    return next(written, f"{PROGRAM} ended with {process.returncode}")
