"""Upgrade and downgrade by one release with tasks in flight, both by their own code on one DynamoDB Local.

`python -m tests.golden.upgrade` prints a table; it exits with 1 if a task is lost, ends wrongly or deletes other files.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import ClientError

from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.errors import UnavailableError
from tests.contract.task_tables import create_task_table, dynamodb_client
from tests.golden.record import former_release
from tests.golden.test_moments import files_of_events
from tests.paths import ROOT

SKIPPED: Final = 77
_MOST_READS: Final = 10_000
DRIVERS: Final = ("tests/golden/moments.py", "tests/golden/legs.py")
DRIVEN_SINCE: Final = "a178fbb1bca9a95891b7529cb50bc67d08dc4c28"
"""The first commit with both drivers, for a former release that is older than they are."""
FORMER, TODAY = "former", "today"
WAYS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "upgrade": ((FORMER, "leave"), (TODAY, "finish")),
    "downgrade": ((TODAY, "leave"), (FORMER, "finish")),
    "upgrade taken back": ((FORMER, "leave"), (TODAY, "step"), (FORMER, "finish")),
    "downgrade taken back": ((TODAY, "leave"), (FORMER, "step"), (TODAY, "finish")),
}
"""Each way as legs: which release's code runs, and how far."""


class NoHistory(UnavailableError):
    """This clone's history lacks the former release."""


@contextlib.contextmanager
def former_tree() -> Iterator[Path]:
    """The former release's code with its own drivers: today's import what it lacks. Raises NoHistory."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        _extract(former_release().name, ("functions", "tests", "spark"), tree)
        if not all((tree / name).is_file() for name in DRIVERS):
            _extract(DRIVEN_SINCE, DRIVERS, tree)
        yield tree


def _extract(commit: str, paths: Iterable[str], folder: Path) -> None:
    archive = subprocess.run(["git", "archive", commit, *paths], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise NoHistory(f"this clone's history has no commit {commit}: fetch it with `git fetch --unshallow`")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
        tree.extractall(folder, filter="data")


def run_leg(tree: Path, leg: str, url: str, given: Any) -> Any:
    """Run a leg by the code of a tree, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'functions'}{os.pathsep}{tree}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.legs", leg, url],
        cwd=tree,
        env=environment,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{leg} by the code in {tree} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout)


def deploy_data(url: str, tables: list[str]) -> int:
    """Add the indexes that today's task table has and these lack, as deploying *Data* before *Service* does.

    Returns how many were added.
    """
    added = 0
    with contextlib.closing(dynamodb_client(url)) as client:
        sample = create_task_table(client)
        wanted = client.describe_table(TableName=sample)["Table"]
        client.delete_table(TableName=sample)
        for table in tables:
            there = client.describe_table(TableName=table)["Table"]
            names = {one["IndexName"] for one in there.get("GlobalSecondaryIndexes", ())}
            for index in wanted["GlobalSecondaryIndexes"]:
                if index["IndexName"] in names:
                    continue
                own = {name: index[name] for name in ("IndexName", "KeySchema", "Projection")}
                client.update_table(
                    TableName=table,
                    AttributeDefinitions=wanted["AttributeDefinitions"],
                    GlobalSecondaryIndexUpdates=[{"Create": own}],
                )
                _wait_for(client, table, index["IndexName"])
                added += 1
    return added


def _wait_for(client: Any, table: str, index: str) -> None:
    """Wait until an index is there: DynamoDB makes one of a table at a time."""
    for _ in range(_MOST_READS):
        try:
            there = client.describe_table(TableName=table)["Table"].get("GlobalSecondaryIndexes", ())
        except ClientError as error:  # DynamoDB Local, while it makes an index
            if error.response["Error"]["Code"] != "InternalFailure":
                raise
            continue
        if any(one["IndexName"] == index and one["IndexStatus"] == "ACTIVE" for one in there):
            return
    raise RuntimeError(f"the index {index} of {table} was not made")


def go_way(way: str, trees: Mapping[str, Path], url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Go a way; return what the first leg left, and how each moment ended."""
    (first, leg), *rest = WAYS[way]
    left = run_leg(trees[first], leg, url, None)
    if first == FORMER:
        deploy_data(url, [moment["table"] for moment in left.values()])
    found = left
    for release, following in rest:
        found = run_leg(trees[release], following, url, found)
    return left, found


def wrong_with(left: Mapping[str, Any], ended: Mapping[str, Any], files: list[str]) -> list[str]:
    """Return a line for each moment whose tasks were lost, did not succeed, or deleted other files than the table's."""
    found = [f"{name}: nothing came of it" for name in left if name not in ended]
    for name, end in ended.items():
        before = left[name]["task_count"]
        if len(end["statuses"]) != before:
            found.append(f"{name}: {before} tasks before, {len(end['statuses'])} afterwards")
        if set(end["statuses"]) != {"SUCCESS"}:
            found.append(f"{name}: {', '.join(end['statuses'])}")
        if end["deleted"] != files:
            found.append(f"{name}: {len(end['deleted'])} files are gone, not the table's {len(files)}")
    return found


def main() -> int:
    """Go every way and print the table."""
    wrong = 0
    try:
        with former_tree() as tree, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
            server = DynamoDbLocal(log=Path(folder, "dynamodb.log")).start()
            opened.callback(server.stop)
            trees = {FORMER: tree, TODAY: ROOT}
            files = files_of_events()
            for way, legs in WAYS.items():
                left, ended = go_way(way, trees, server.url)
                problems = wrong_with(left, ended, files)
                wrong += len(problems)
                path = " → ".join(f"{release} {leg}" for release, leg in legs)
                tasks = sum(moment["task_count"] for moment in left.values())
                sys.stdout.write(f"{way:<22}{path:<52}{len(left):>3} moments{tasks:>4} tasks  {len(problems)} wrong\n")
                sys.stdout.writelines(f"  {problem}\n" for problem in problems)
                sys.stdout.flush()
    except UnavailableError as error:
        sys.stdout.write(f"skipped: {error}\n")
        return SKIPPED
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
