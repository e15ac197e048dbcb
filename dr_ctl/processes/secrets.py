"""Passwords from the environment, a file or a command, as the settings say. They are resolved when first needed, never
shown, and masked in the output of other programs."""

import os
import re
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.settings.model import Settings, secrets
from dr_ctl.settings.parts import Secret

COMMAND_S: Final = 10.0
_SECRET: Final = re.compile(r"pass|pwd|secret|token|credential|private|api_?key|access_?key|auth", re.IGNORECASE)
_LOGIN: Final = re.compile(r"://[^/@:\s]*:([^@\s]+)@")  # the password of an address, encoded or not
_MIN_LENGTH: Final = 4  # of a masked value: a shorter one may be part of any text
_resolved: Final[set[str]] = set()


class SecretMissing(BrokerError):
    """The secret cannot be read, so its broker cannot be asked and its site is unknown."""

    is_local = True
    remedy = "Fix where the password of this broker comes from in the settings file."


def resolve(secret: Secret, folder: Path) -> str:
    """Return the secret's text without its last newline; paths and commands are relative to `folder`."""
    text = _read(secret, folder)
    if not text and secret.plain is None:
        # Repeated logins with a wrong password lock the account out.
        raise SecretMissing(f"the password is empty: {secret.source}")
    _resolved.add(text)
    return text


def masked(text: str, secrets: Collection[str]) -> str:
    """Mask these secrets in a text, and all that this process has resolved."""
    for secret in sorted(filter(None, {*_resolved, *secrets}), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def secret_values(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values of an environment under names of secrets, and the passwords in its addresses."""
    named = {value for name, value in environment.items() if _SECRET.search(name)}
    in_addresses = {password for value in environment.values() for password in _LOGIN.findall(value)}
    return frozenset(text for text in named | in_addresses if len(text) >= _MIN_LENGTH)


def variables(settings: Settings) -> frozenset[str]:
    """Name the variables with passwords, which commands of dr-ctl must not get."""
    return frozenset(secret.env for _, secret in secrets(settings) if secret.env is not None)


def _read(secret: Secret, folder: Path) -> str:
    if secret.plain is not None:
        return secret.plain
    if secret.env is not None:
        value = os.environ.get(secret.env)
        if value is None:
            raise SecretMissing(f"the environment variable {secret.env} is not set")
        return value
    if secret.file is not None:
        path = folder / secret.file
        try:
            # systemd, or a pod, gives a service its secrets as files of these names.
            if (handed := os.environ.get("CREDENTIALS_DIRECTORY")) and (Path(handed) / path.name).exists():
                path = Path(handed) / path.name
            return path.read_text(encoding="utf-8").removesuffix("\n")
        except OSError as error:
            raise SecretMissing(f"the secret's file {path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise SecretMissing(f"the secret's file {path} cannot be read: it is not UTF-8 text") from None
    assert secret.command is not None
    try:
        done = subprocess.run(
            secret.command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SecretMissing(f"the secret's command {secret.command[0]} failed: {type(error).__name__}") from error
    if done.returncode != 0:
        raise SecretMissing(f"the secret's command {secret.command[0]} ended with {done.returncode}")
    try:
        return done.stdout.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError:  # a wrong password would lock the account out
        raise SecretMissing(f"the secret's command {secret.command[0]} wrote no UTF-8 text") from None
