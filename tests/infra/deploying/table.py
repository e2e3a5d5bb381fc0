"""What `delegation deploy-check` says of every change between two choices of settings, as a table.

`python -m tests.infra.deploying.table` synthesises all of them (ten minutes) and writes it into changes.txt beside this
module. Rows are deployed settings, columns the next ones; a dot is allowed.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from delegation.cli.deployment.deploying import Risk, dangers_of
from tests.infra.deploying.templates import FORMER, FORMER_APPLICATION, SETTINGS, imports_in, skeleton, synthesized

RECORD: Final = Path(__file__).with_name("changes.txt")
LETTERS: Final[Mapping[Risk, str]] = {
    Risk.REPLACED: "D",
    Risk.REMOVED: "R",
    Risk.NETWORK_REPLACED: "N",
    Risk.EXPORT_IN_USE: "E",
    Risk.APPLICATION_MUST_STOP: "S",
    Risk.APPLICATION_LEFT: "A",
    Risk.INDEXES_AT_ONCE: "I",
}
Skeletons = Mapping[str, Mapping[str, Any]]
"""The skeletons of the templates of each choice, by stack."""


def deployed_id(_stack: str, name: str) -> str | None:
    """Every deployed application has this id."""
    return FORMER_APPLICATION if "Spark" in name else None


def cell(former: Any, new: Any) -> str:
    """Return the letters of what is refused, a dot if nothing is."""
    found = dangers_of(former, new, imports_in(former), deployed_id)
    return "".join(sorted({LETTERS[one.harm] for one in found})) or "·"


def table(choices: Skeletons, former: Skeletons) -> str:
    """Return the table: a row for each choice that is deployed, those of the last release below."""
    names = list(choices)
    width = max(map(len, [*names, *(f"last release, {name}" for name in former)])) + 4
    lines = [" " * width + "".join(f"{number:>5}" for number in range(1, len(names) + 1))]
    for number, name in enumerate(names, start=1):
        cells = "".join(f"{cell(choices[name], choices[each]) if each != name else '':>5}" for each in names)
        lines.append(f"{f'{number:>2} {name}':<{width}}{cells}")
    for name, deployed in former.items():
        cells = "".join(f"{cell(deployed, choices[each]):>5}" for each in names)
        lines.append(f"{f'   last release, {name}':<{width}}{cells}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def recorded() -> Skeletons:
    """The skeletons of the last release."""
    found: Skeletons = json.loads(FORMER.read_text(encoding="utf-8"))
    return found


def main() -> None:
    choices = {}
    for name in SETTINGS:
        choices[name] = {stack: skeleton(template) for stack, template in synthesized(name).items()}
    text = table(choices, recorded())
    sys.stdout.write(text)
    RECORD.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
