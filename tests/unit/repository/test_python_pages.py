"""The Python of docs/workers.md and docs/persistence.md is run as it is on the page."""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from delegation.tasks.authoring import AsyncContext, Context, behavior
from delegation.tasks.testing import TaskHarness
from polaris_persistence.catalogs.realms import MAIN
from polaris_persistence.commits.directories import entity_committer
from tests.paths import DOCS

BLOCK = re.compile(r"^```python\n# (\S+?\.py)(?:, continued)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(params=["workers", "persistence"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Write the files of a page as its blocks have them; a block without a name is no file."""
    page = (DOCS / f"{request.param}.md").read_text(encoding="utf-8")
    found = BLOCK.findall(page)
    assert len(found) == page.count("```python")
    for name, text in found:
        file = tmp_path / request.param / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as end:
            end.write(text)
    yield tmp_path / request.param
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


def values_of(written: Path, name: str) -> dict[str, Any]:
    values: dict[str, Any] = {"__name__": name}
    exec(compile((written / name).read_text(encoding="utf-8"), name, "exec"), values)
    return values


@pytest.mark.parametrize("written", ["persistence"], indirect=True)
def test_the_start_of_the_persistence_runs(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = values_of(written, "acme/start.py")
    head = entity_committer(started["store"], MAIN).head()
    assert head is not None
    names = [key.elements() for key, _ in head.value.working_index(started["store"].fetch_many).items()]
    assert names == [("ns", "t")]
    assert head.value.seq == 3
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        assert list(values_of(written, "acme/backend.py")["backend"].references()) == []


@pytest.mark.parametrize("written", ["workers"], indirect=True)
def test_the_asynchronous_behavior_of_the_page_gathers_its_children(written, monkeypatch):
    monkeypatch.syspath_prepend(str(written))
    from acme.loads import load  # type: ignore[import-not-found]
    from acme.reports import count  # type: ignore[import-not-found]

    harness = TaskHarness(load, count)
    handle = harness.submit(load.of(["north", "south"]))
    submitted = handle.get()
    harness.run_until_idle()
    assert handle.result() == 1010
    assert submitted.deadline_ts - submitted.created_ts == load.deadline
    assert submitted.payload_version == 2


def test_the_page_has_every_option_of_a_behavior_and_no_other() -> None:
    page = (DOCS / "workers.md").read_text(encoding="utf-8")
    table = page[page.index("| option of `@behavior` |") :].split("\n\n", 1)[0]
    named = set(re.findall(r"`(\w+)=", "\n".join(line.split("|")[1] for line in table.splitlines())))
    assert named == set(inspect.signature(behavior).parameters) - {"task_type"}


def test_what_a_context_has_an_asynchronous_one_has_with_the_same_arguments() -> None:
    page = (DOCS / "workers.md").read_text(encoding="utf-8")
    table = page[page.index("| `checkpoint(cursor=…)`") :].split("\n\n", 1)[0]
    for name in {"cursor", *re.findall(r"^\| `(\w+)\(", table, re.MULTILINE)}:
        both = [inspect.getattr_static(one, name) for one in (Context, AsyncContext)]
        if not isinstance(both[0], property):
            one, other = (list(inspect.signature(method).parameters) for method in both)
            assert one == other
            assert inspect.iscoroutinefunction(both[1])
