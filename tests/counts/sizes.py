"""Print how large the code is at two commits: statements, exception classes, and the public members of TaskService.

    python -m tests.counts.sizes                   # from before task types were values to the last commit
    python -m tests.counts.sizes BEFORE AFTER      # between any two commits

Statements are nodes of the syntax tree, so lines, comments and formatting do not count. The last columns leave out
LATER: rooms of features that came after BEFORE, so that one sees what became of the code that was there.
"""

import argparse
import ast
import builtins
import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tests.paths import ROOT

BEFORE: Final = "e6b93ef7"
"""The last commit before task types became values."""
TOPS: Final = ("functions", "infra", "tests")
LATER: Final = (
    "functions/delegation/cli/catalog/",
    "functions/delegation/cli/expire.py",
    "functions/delegation/cli/orphans.py",
    "functions/delegation/cli/restore.py",
    "functions/delegation/handlers/probe_front.py",
    "functions/delegation/removal/expiry/",
    "functions/delegation/removal/orphans/",
    "functions/polaris_persistence/iceberg/updates/",
    "functions/delegation/storage/listing/",
    "functions/delegation/tasks/contract/",
    "functions/delegation/testing/",
    "functions/delegation/upkeep/",
    "functions/delegation/wiring/policies.py",
    "functions/delegation/wiring/probe.py",
    "functions/delegation/wiring/removals.py",
    "functions/delegation/wiring/upkeep.py",
    "infra/local/catalog/policies.py",
    "infra/site/",
)
"""Snapshot expiry, orphan files, upkeep and audit; a probe of the front, gradual deployments, updates of tables that
the persistence makes, suites of stores that moved here from tests/, and the site of the documentation."""
Sources = Mapping[str, str]
"""The text of each module by its path."""


def sources_of(commit: str) -> Sources:
    """Return the modules of a commit; raises CalledProcessError if git does not know it."""
    tops = [top for top in TOPS if _git("ls-tree", "--name-only", commit, top)]
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, *tops))) as archive:
        members = (one for one in archive if one.isfile() and one.name.endswith(".py"))
        read = ((one.name, archive.extractfile(one)) for one in members)
        return {name: file.read().decode() for name, file in read if file is not None}


def statements(sources: Sources) -> Counter[str]:
    """Return the number of statements of each module."""
    return Counter(
        {name: sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text))) for name, text in sources.items()}
    )


def room_of(name: str) -> str:
    """Return the room of a module: the first three folders of its path, or as many as there are."""
    return "/".join(name.split("/")[:-1][:3])


def exception_classes(sources: Sources) -> frozenset[str]:
    """Return the names of the classes that are exceptions, by the names of their bases."""
    bases = {one.name: _bases(one) for one in _classes(sources)}
    known = {name for name, one in vars(builtins).items() if isinstance(one, type) and issubclass(one, BaseException)}
    found: set[str] = set()
    while new := {name for name, names in bases.items() if name not in found and names & (known | found)}:
        found |= new
    return frozenset(found)


def members_of(sources: Sources, name: str) -> frozenset[str]:
    """Return the public methods and attributes of a class and of its bases, by name."""
    classes = {one.name: one for one in _classes(sources)}
    found: set[str] = set()
    waiting = [name]
    while waiting:
        if (one := classes.get(waiting.pop())) is not None:
            found |= set(_own_members(one))
            waiting += _bases(one)
    return frozenset(member for member in found if not member.startswith("_"))


def table(before: Sources, after: Sources) -> str:
    """Return the figures of two commits as text."""
    then, now = statements(before), statements(after)
    old = Counter({name: number for name, number in now.items() if not name.startswith(LATER)})
    lines = [f"{'statements':44}{'before':>9}{'after':>9}{'':>8}{'without later features':>26}"]
    for top in TOPS:
        numbers = [_sum(one, lambda name, top=top: name.startswith(f"{top}/")) for one in (then, now, old)]
        lines.append(_line(top, *numbers))
    rooms = sorted({room_of(name) for name in then + now if not name.startswith("tests/")})
    for room in rooms:
        numbers = [_sum(one, lambda name, room=room: room_of(name) == room) for one in (then, now, old)]
        lines.append(_line(f"  {room}", *numbers))
    production = [
        {name: text for name, text in one.items() if not name.startswith("tests/")} for one in (before, after)
    ]
    classes = [len(exception_classes(one)) for one in production]
    members = [len(members_of(one, "TaskService")) for one in production]
    lines += ["", _line("exception classes", *classes), _line("public members of TaskService", *members)]
    return "\n".join(lines) + "\n"


def _line(name: str, before: int, after: int, old: int | None = None) -> str:
    shown = f"{name:44}{before:9,}{after:9,}{_change(before, after):>8}"
    return shown if old is None else f"{shown}{old:18,}{_change(before, old):>8}"


def _change(before: int, after: int) -> str:
    return f"{(after - before) / before:+.0%}" if before else "new"


def _sum(numbers: Mapping[str, int], counts: Callable[[str], bool]) -> int:
    return sum(number for name, number in numbers.items() if counts(name))


def _classes(sources: Sources) -> Iterable[ast.ClassDef]:
    for text in sources.values():
        yield from (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))


def _bases(one: ast.ClassDef) -> set[str]:
    """Return the last names of a class's bases: of `errors.StoreError[T]` StoreError."""
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in one.bases)
    return {base.attr if isinstance(base, ast.Attribute) else base.id for base in plain if not _is_other(base)}


def _is_other(base: ast.expr) -> bool:
    return not isinstance(base, ast.Attribute | ast.Name)


def _own_members(one: ast.ClassDef) -> Iterable[str]:
    for node in one.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
            for inner in ast.walk(node):
                if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_self(inner.value):
                    yield inner.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.counts.sizes", description="The size of two commits.")
    parser.add_argument("before", nargs="?", default=BEFORE)
    parser.add_argument("after", nargs="?", default="HEAD")
    given = parser.parse_args()
    sys.stdout.write(table(sources_of(given.before), sources_of(given.after)))


if __name__ == "__main__":
    main()
