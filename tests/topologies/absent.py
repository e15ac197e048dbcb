"""What is taken out of a broker's files, by `absent.yaml`, is told."""

import re
from pathlib import Path

import yaml

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, until


def tells_of(operator: Operator, lab: Lab, topology: str) -> None:
    """Where lines of a file of Paris are absent, `validate` has each of their findings, and none of them once the file
    is as it was."""

    def told(findings: list[list[str]]) -> list[list[str]]:
        rows = operator.run("validate", "--to", "paris").document["findings"]
        return [one for one in findings if any(row["id"] == one[0] and one[1] in row["remedy"] for row in rows)]

    for case in yaml.safe_load(Path(__file__).with_name("absent.yaml").read_text("utf-8"))[topology]:
        path = lab.instance("paris") / case["file"]
        whole = changed = path.read_text("utf-8")
        for pattern, line in case["lines"].items():
            assert re.search(pattern, changed, re.DOTALL), pattern
            changed = re.sub(pattern, line, changed, flags=re.DOTALL)
        for text, wanted in ((changed, case["findings"]), (whole, [])):
            path.write_text(text, "utf-8")
            lab.stop("paris")
            lab.start("paris")
            until(lambda: told(case["findings"]) == wanted, why=f"{wanted}, by {case['lines']}")  # noqa: B023
