"""Who records into a history elsewhere: each monitor keeps a mark in the store, by whose times a second one sees the
first. The store's own clock counts, for it made both."""

import hashlib
import json
import socket
from collections.abc import Mapping
from typing import Final

from dr_ctl.rpo.history.store import Identity, Store
from dr_ctl.settings.model import Place

LIVES_NS: Final = 150 * 1_000_000_000
"""A monitor renews its mark each minute; after so long without that it is gone, or its machine is."""
_BEGIN: Final = "_monitor-"


def mark_of(place: Place) -> str:
    """The name of this machine's mark: two monitors that write to one folder of one machine have one lock."""
    folder = hashlib.sha256(str(place.near).encode()).hexdigest()[:8]
    return f"{_BEGIN}{socket.gethostname()}-{folder}.json"


def renew(store: Store, mark: str) -> None:
    """Say that a monitor lives. Raises OSError."""
    text = json.dumps({"host": socket.gethostname()}).encode()
    store.write(mark, lambda sink: sink.write(text))


def others(there: Mapping[str, Identity], mark: str) -> list[str]:
    """The marks of other monitors that live, by what lies in the store once the own mark was renewed."""
    if mark not in there:
        return []
    now_ns = there[mark].mtime_ns
    return sorted(
        name
        for name, each in there.items()
        if name.startswith(_BEGIN) and name != mark and each.mtime_ns > now_ns - LIVES_NS
    )


def host_of(mark: str) -> str:
    return mark.removeprefix(_BEGIN).rpartition("-")[0]
