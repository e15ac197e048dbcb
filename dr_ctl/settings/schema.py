"""The settings file as a JSON Schema, made of its classes.

python -m dr_ctl.settings.schema > docs/settings.schema.json
"""

import json
import sys
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from dr_ctl.settings.topologies import TOPOLOGIES


def schema() -> dict[str, Any]:
    every: Any = reduce(or_, (TOPOLOGIES.named(each) for each in TOPOLOGIES))
    document = TypeAdapter[Any](Annotated[every, Field(discriminator="topology")]).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dr-ctl settings", **document}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
