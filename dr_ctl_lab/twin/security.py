"""Rights at one simulated broker: roles of users, and rights of roles by address match."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

WORDS: Final = (
    "send", "consume", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue", "deleteNonDurableQueue",
    "manage", "browse", "createAddress", "deleteAddress", "view", "edit",
)  # fmt: skip
_DELETING: Final = frozenset({"deleteDurableQueue", "deleteNonDurableQueue", "deleteAddress"})
EVERYTHING: Final = frozenset(WORDS) - {"manage", "view", "edit"}
CLIENTS_DO: Final = EVERYTHING - _DELETING
ALL: Final = "#"
APPS: Final = "apps"  # the role of the clients

Grants = Mapping[str, frozenset[str]]


class Security:
    """`stored` are settings made by management, which survive a restart. A setting that replaced a match of broker.xml
    stays in force after its removal, until the file is read again."""

    def __init__(self, roles: Mapping[str, str], file: Mapping[str, Grants] | None = None) -> None:
        """`roles`: the role of each user. Without `file` the first user's role has all rights, the others those of
        clients."""
        self.roles = dict(roles)
        first = next(iter(roles.values()), "")
        rights = {role: EVERYTHING if role == first else CLIENTS_DO for role in roles.values()}
        self._file: Mapping[str, Grants] = file or {ALL: rights}
        self.stored: dict[str, Grants] = {}
        self._in_force: dict[str, Grants] = dict(self._file)

    def reload(self) -> None:
        self._in_force = {**self._file, **self.stored}

    def without_stored(self) -> Security:
        """The rights at a node that has not read the stored settings."""
        return Security(self.roles, self._file)

    def add(self, match: str, *roles: str) -> None:
        """Set a match; `roles` are, for each word in order, its roles separated by commas."""
        named = [[role.strip() for role in text.split(",") if role.strip()] for text in roles]
        everyone = dict.fromkeys(role for name in named for role in name)
        grants = {
            role: frozenset(word for word, row in zip(WORDS, named, strict=False) if role in row) for role in everyone
        }
        self.stored[match] = self._in_force[match] = grants

    def keep_out(self, role: str, match: str) -> None:
        """Take all rights of a role at a match away; other roles keep theirs."""
        grants = self.grants(match)
        self.add(
            match,
            *(",".join(grant for grant, may in grants.items() if word in may and grant != role) for word in WORDS),
        )

    def remove(self, match: str) -> None:
        self.stored.pop(match, None)
        if match not in self._file:
            self._in_force.pop(match, None)

    def grants(self, address: str) -> Grants:
        """The rights of the longest match."""
        fitting = [match for match in self._in_force if _fits(match, address)]
        return self._in_force[max(fitting, key=len)]

    def may(self, user: str, word: str, address: str) -> bool:
        return word in self.grants(address).get(self.roles.get(user, ""), ())

    def as_json(self, address: str) -> str:
        rows = [
            {"name": role, **{word: word in words for word in WORDS}} for role, words in self.grants(address).items()
        ]
        return json.dumps(rows)

    def users(self, name: str) -> str:
        """JSON of the users with their roles; an unknown user has no role."""
        listed: Sequence[str] = [name] if name else list(self.roles)
        rows = [{"username": user, "roles": [self.roles[user]] if user in self.roles else []} for user in listed]
        return json.dumps(rows)


def _fits(match: str, address: str) -> bool:
    stem = match.removesuffix(ALL).removesuffix(".")
    if stem.endswith("*"):
        return address == match or (address.startswith(stem[:-1]) and address != stem[:-1])
    return match in (ALL, address) or (match.endswith(f".{ALL}") and f"{address}.".startswith(f"{stem}."))
