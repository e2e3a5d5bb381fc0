"""What a check found, and how the findings are shown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: `ok` is None if it could not be made; `fix` says how to mend what is broken."""

    name: str
    ok: bool | None
    detail: str
    fix: str = ""

    def document(self) -> dict[str, Any]:
        """Return the members of the JSON document."""
        return asdict(self)


def passed(name: str, detail: str) -> CheckResult:
    """Return that a part works."""
    return CheckResult(name, ok=True, detail=detail)


def failed(name: str, detail: str, fix: str) -> CheckResult:
    """Return that a part is broken, and how to mend it."""
    return CheckResult(name, ok=False, detail=detail, fix=fix)


def not_checked(name: str, why: str) -> CheckResult:
    """Return that a part could not be checked."""
    return CheckResult(name, ok=None, detail=why)


def findings_screen(findings: Sequence[CheckResult]) -> RenderableType:
    """Return the findings, a line each, with the fix below what is broken; print it with `crop=False`.

    A fix is one line however narrow the terminal is, because it is often a command, which is copied.
    """
    marks = {True: Text("✓", "green"), False: Text("✗", "bold red"), None: Text("-", "dim")}
    widest = max((len(one.name) for one in findings), default=0)
    parts: list[RenderableType] = []
    for one in findings:
        style = "dim" if one.ok is None else ""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, min_width=widest)
        grid.add_column(overflow="fold")
        grid.add_row(marks[one.ok], Text(one.name, style), Text(one.detail, style))
        parts.append(grid)
        if one.fix:
            parts.append(Text(f"   → {one.fix}", "yellow", no_wrap=True, overflow="ignore"))
    broken = sum(one.ok is False for one in findings)
    skipped = sum(one.ok is None for one in findings)
    rest = f", {skipped} not checked" if skipped else ""
    summary = Text(f"{broken} of {len(findings)} checks failed{rest}.", "bold red") if broken else Text(
        f"{len(findings) - skipped} checks passed{rest}.", "green"
    )  # fmt: skip
    return Group(*parts, summary)
