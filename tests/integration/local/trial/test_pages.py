"""The pages that a newcomer follows on one machine: their commands exist, and do what the pages say."""

import re
import signal
import sys
from importlib.metadata import entry_points
from itertools import pairwise

import pytest
from typer.main import get_command

from delegation.cli.connection import Stack
from delegation.cli.main import ENTRY_POINTS, build
from delegation.cli.submit import parse_properties
from infra.local.demo.tables import Bucket, trial_properties
from tests.integration.local.trial.pages import Newcomer, commands

ORPHANS = commands("orphans.md", "On this machine, in five minutes")


UPKEEP = commands("upkeep.md", "On this machine, in three minutes")


@pytest.mark.parametrize("words", [*ORPHANS, *UPKEEP], ids=" ".join)
def test_each_command_of_the_page_is_one_of_this_release(words):
    """Its arguments and options are parsed, and nothing runs."""
    command, rest = get_command(build(entry_points(group=ENTRY_POINTS))), list(words)
    while hasattr(command, "loaded") or hasattr(command, "commands"):
        name = rest.pop(0)
        command = command.loaded(name) if hasattr(command, "loaded") else command.commands[name]
    with command.make_context(command.name, rest) as context:
        assert not context.args


def test_the_page_of_upkeep_sets_what_the_demo_sets():
    given = parse_properties([value for name, value in pairwise(UPKEEP[0]) if name == "--property"])
    assert given == trial_properties("lake")
    assert [" ".join(words[:2]) for words in UPKEEP[1:]] == [
        *("local tables", "policy create", "policy attach", "policy detach")
    ]


def test_the_page_of_orphan_files_has_each_step():
    steps = [" ".join(words[:2]) for words in ORPHANS]
    assert steps == [
        *("local up", "local tables", "local plant-orphans", "orphans scan", "orphans show", "orphans approve"),
        *("tasks receipt", "orphans restore", "local tables"),
    ]


@pytest.mark.long
@pytest.mark.stack
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="reads processes from /proc")
def test_orphan_files_are_found_deleted_and_restored_as_the_page_says(tmp_path):
    up, tables, plant, scan, show, approve, receipt, restore, again = ORPHANS
    newcomer = Newcomer(tmp_path / "state", up)
    try:
        before = line_of(newcomer.run(*tables))
        planted = re.findall(r"s3://\S+", newcomer.run(*plant))
        assert len(planted) == 5
        counts = [objects(newcomer)]
        assert re.search(r"found 5 orphan files, [0-9.]+ [KM]?i?B(ytes)?, of 47 objects", newcomer.run(*scan))
        assert sorted(re.findall(r"s3://\S+\.(?:parquet|avro)", newcomer.run(*show))) == sorted(planted)
        assert "deleted 5 orphan files" in newcomer.run(*approve)
        assert re.search(r"^files_deleted +5$", newcomer.run(*receipt), re.MULTILINE)
        counts.append(objects(newcomer))
        assert "Restored 5 files" in newcomer.run(*restore)
        counts.append(objects(newcomer))
        after = line_of(newcomer.run(*again))
    finally:
        newcomer.process.end(signal.SIGTERM)
    assert counts == [47, 42, 47]
    # Rows, snapshots, objects, checksum of the rows.
    assert before[-4:] == ["318", "4", "42", before[-1]]
    assert after[-4:] == ["318", "4", "47", before[-1]]


def line_of(printed):
    [line] = [line.split() for line in printed.splitlines() if line.startswith("lake.shop.orders")]
    return line


def objects(newcomer):
    return len(Bucket(Stack.read(newcomer.process.path)).keys("s3://warehouse/lake/shop/orders"))
