"""How a process that runs for long gives memory back that it does not use any more."""

import ctypes
import os
from typing import Final

# Of mallopt(3), where the C library has it. By default memory freed in a thread's arena stays there, and large blocks
# move to where they cannot be given back. A monitor does not need that speed.
_ARENAS: Final = (-8, 1)
_MAPPED_FROM: Final = (-3, 128 * 1024)
_TRIMMED_FROM: Final = (-1, 128 * 1024)


def give_back() -> None:
    """Let the C library and Arrow return what was freed. Only before Arrow is loaded and threads begin."""
    # Arrow's own allocator keeps what was freed.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for option in (_ARENAS, _MAPPED_FROM, _TRIMMED_FROM):
            mallopt(*option)
