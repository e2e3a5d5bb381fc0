"""Every loop over items of the service, each with bad items of every kind among good ones: the good are served.

The loops are found in the sources, so that a new one without a world here, or without its line on the page, fails.
"""

import ast
import itertools
import re
from collections.abc import Callable, Iterator

import pytest

from delegation.iceberg.errors import CorruptMetadata
from delegation.polaris.answers import PolarisUnavailable, PolarisUnexpectedAnswer
from delegation.storage.base import FileTooLarge
from delegation.tasks.errors import MalformedRecord
from tests.effort import sampled
from tests.kit.sources import modules, tree_of
from tests.paths import ROOT
from tests.unit.items import outer_worlds  # noqa: F401 - its worlds are registered
from tests.unit.items.worlds import WORLDS

PAGE = ROOT / "docs" / "architecture" / "running.md"
CALLS = {"each_item", "readable", "_each", "add_each"}
"""The piece, and what hands a name on to it."""
BAD: dict[str, Callable[[], Exception]] = {
    "5xx": lambda: PolarisUnavailable("Polaris answered 503 ServiceFailureException", status=503),
    "timeout": lambda: PolarisUnavailable("Polaris did not answer: ReadTimeout"),
    "garbage": lambda: PolarisUnexpectedAnswer("Polaris answered with something other than a JSON object", status=200),
    "too large": lambda: FileTooLarge("s3://lake/t/metadata/1.metadata.json has more than 512 MiB"),
    "unparseable": lambda: MalformedRecord("format: 9 is not 1"),
    "damaged": lambda: CorruptMetadata("s3://lake/t/metadata/1.metadata.json", "snapshots", "it is no list"),
    "overflow": lambda: OverflowError("date value out of range"),
}


def names() -> Iterator[str]:
    """Yield the names of the loops in the sources, each a text or a constant of its module."""
    for path in modules("functions"):
        if not any(f"{call}(" in path.read_text(encoding="utf-8") for call in CALLS):
            continue
        nodes = list(ast.walk(tree_of(path)))
        texts = {
            node.target.id: node.value.value
            for node in nodes
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in nodes:
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in CALLS:
                [value] = [keyword.value for keyword in node.keywords if keyword.arg == "name"] or [None]
                if isinstance(value, ast.Constant):
                    yield str(value.value)
                elif isinstance(value, ast.Name) and value.id in texts:
                    yield str(texts[value.id])


# Collected without reading the sources; the first test compares.
LOOPS = sorted(WORLDS)


def test_every_loop_has_a_name_of_its_own_a_world_and_a_place_on_the_page() -> None:
    assert len(LOOPS) > 15
    assert sorted(names()) == LOOPS
    named = re.findall(r"`([a-z-]+\.[a-z-]+)`", PAGE.read_text().partition("\n## Loops over items\n")[2])
    assert sorted(named) == LOOPS


KINDS = sorted(BAD)


def is_short(case: tuple[str, str]) -> bool:
    """Return whether a short run plays a case: each loop meets two of the seven kinds, neighbours other ones."""
    loop, kind = case
    return (KINDS.index(kind) - 2 * LOOPS.index(loop)) % len(KINDS) < 2


@pytest.mark.parametrize(("loop", "kind"), sampled(itertools.product(LOOPS, KINDS), is_short))
def test_good_items_are_served_although_bad_ones_of_every_kind_stand_among_them(loop: str, kind: str) -> None:
    good, served = WORLDS[loop](BAD[kind])
    assert good
    assert good <= served
