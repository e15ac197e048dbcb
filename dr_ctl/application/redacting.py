"""The settings without anything secret, and the ways in which a password may stand in a text.

What is shown is chosen, not what is hidden: of a secret its form, of a command its first word, of Spark's own settings
their names.
"""

import base64
import html
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import quote, quote_plus

from dr_ctl.core.model import Json
from dr_ctl.core.notation import address
from dr_ctl.processes.secrets import SecretMissing, resolve
from dr_ctl.settings.model import Installation, SparkSettings
from dr_ctl.settings.parts import Part, Secret

MASK: Final = "***"
_COMMANDS: Final = ("run", "start", "stop", "state", "command")
_LEAST: Final = 4
"""Characters of a password that is looked for: a shorter one stands in every text by chance."""


def redacted(part: Part) -> dict[str, Json]:
    """What somebody wrote into this part of the settings, without secrets."""
    values: dict[str, Json] = {}
    for name in sorted(part.model_fields_set, key=[*type(part).model_fields].index):
        value = getattr(part, name)
        if isinstance(part, SparkSettings) and name == "conf":
            values[name] = dict.fromkeys(value, MASK)
        else:
            values[name] = _shown(name, value)
    return values


def texts(installation: Installation) -> frozenset[bytes]:
    """Each password of the settings that can be had without a command, in every form that a file may hold it in. One
    that is also an open word of the settings, as `admin` of a user, cannot be told from that word."""
    settings = installation.settings
    secrets = [*_secrets(settings)]
    values = {value for secret in secrets if secret.command is None if (value := _value(secret, installation))}
    open_words = {*_words(redacted(settings))}
    users = {user for user in (getattr(part, "username", None) for part in _parts(settings)) if user}
    found = {form for value in values - open_words if len(value) >= _LEAST for form in _forms(value, sorted(users))}
    return frozenset(found)


def _shown(name: str, value: object) -> Json:
    if isinstance(value, Secret):
        return _form(value)
    if isinstance(value, Part):
        return redacted(value)
    if isinstance(value, dict):
        return {str(key): _shown(name, each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        if name in _COMMANDS and value:
            return [address(str(value[0])), *[MASK] * (len(value) - 1)]
        return [_shown(name, each) for each in value]
    if isinstance(value, str):
        return address(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _form(secret: Secret) -> dict[str, Json]:
    if secret.env is not None:
        return {"env": secret.env}
    if secret.file is not None:
        return {"file": secret.file}
    if secret.command is not None:
        return {"command": _shown("command", secret.command)}
    return {"plain": MASK}


def _value(secret: Secret, installation: Installation) -> str | None:
    with suppress(SecretMissing):
        return resolve(secret, installation.file.parent)
    return None


def _forms(value: str, users: list[str]) -> Iterator[bytes]:
    """As it is, escaped as in JSON, HTML and addresses, and in what a login over HTTP sends."""
    yield value.encode()
    yield json.dumps(value)[1:-1].encode()
    yield json.dumps(value, ensure_ascii=False)[1:-1].encode()
    yield html.escape(value).encode()
    yield quote(value, safe="").encode()
    yield quote_plus(value).encode()
    yield base64.b64encode(value.encode())
    for user in users:
        yield base64.b64encode(f"{user}:{value}".encode())


def _parts(part: Part) -> Iterator[Part]:
    yield part
    for _, value in part:
        yield from _within(value)


def _within(value: object) -> Iterator[Part]:
    if isinstance(value, Part):
        yield from _parts(value)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _within(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _within(each)


def _secrets(part: Part) -> Iterator[Secret]:
    return (each for each in _parts(part) if isinstance(each, Secret))


def _words(value: Json) -> Iterator[str]:
    """Every text that stands alone in the redacted settings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _words(each)
    elif isinstance(value, list):
        for each in value:
            yield from _words(each)
