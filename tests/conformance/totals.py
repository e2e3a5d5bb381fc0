"""The totals of a run of generated requests, and whether they suffice; no I/O."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CASES = 5_000
PAST = 0.2


@dataclass
class Totals:
    """Counts of requests.

    `past`: those that authorisation did not stop (401, 403); `linked`: those that a link led to a task.
    """

    cases: int = 0
    past: int = 0
    linked: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    unforeseen: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, lines: Iterable[str]) -> "Totals":
        """Count the lines that the hooks wrote."""
        for line in lines:
            each = json.loads(line)
            if "dropped" in each:
                self.dropped[each["dropped"]] += 1
                continue
            self.cases += 1
            self.past += each["status"] not in {401, 403}
            self.linked += each["linked"]
            name = f"{each['status']} {each['code'] or ''}".strip()
            self.answers[name] += 1
            if not each["foreseen"]:
                self.unforeseen[f"{name} of {each['operation']}"] += 1
        return self

    def shortfalls(self, *, cases: int = CASES, past: float = PAST) -> Iterator[str]:
        """Yield what is missing."""
        if self.cases < cases:
            yield f"{self.cases} cases, fewer than {cases}"
        if self.past < past * self.cases:
            yield f"{self.past} of {self.cases} cases past authorisation, fewer than {past:.0%}"
        if not self.linked:
            yield "no link led to a task"
        for name, count in self.unforeseen.items():
            yield f"{count} unforeseen server errors: {name}"

    def lines(self) -> Iterator[str]:
        """Yield the totals as text."""
        share = self.past / self.cases if self.cases else 0.0
        yield f"{self.cases} cases, {self.past} ({share:.0%}) past authorisation, {self.linked} led to a task by a link"
        yield "  answers: " + ", ".join(f"{count} {name}" for name, count in self.answers.most_common())
        for reason, count in self.dropped.most_common():
            yield f"  expected refusals: {count} ({reason})"
