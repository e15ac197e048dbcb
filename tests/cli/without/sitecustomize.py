"""Python begins with this where its folder is on the path: the packages that a variable names are not there."""

import os
import sys


class Without:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in os.environ["WITHOUT"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Without())  # type: ignore[arg-type]
