"""What is wrong with settings: one line for each, with its name and never its value."""

from collections.abc import Iterable
from dataclasses import dataclass

from polaris_common.errors import DelegationError


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """What is wrong with one setting, without its value."""

    setting: str
    reason: str


class SettingsInvalid(DelegationError):
    """Settings of a file, a profile or the environment are missing or wrong; `problems` has one entry for each.
    `next_step` is a sentence for the person who set them."""

    code = "SETTINGS_INVALID"

    def __init__(self, where: str, problems: Iterable[FieldProblem], next_step: str) -> None:
        self.problems = tuple(problems)
        self.next_step = next_step
        lines = "\n".join(f"  {problem.setting}: {problem.reason}" for problem in self.problems)
        count = f"{len(self.problems)} settings are" if len(self.problems) != 1 else "1 setting is"
        super().__init__(f"{where}: {count} wrong\n{lines}")
