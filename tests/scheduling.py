"""Which tests share a process under `pytest -n`, and in what order they start.

Each file runs in one process, as with `--dist loadfile`; files that share a server that starts slowly (the local stack,
DynamoDB Local, Spark's JVM) run in the same process. The longest tests start first.
"""

from typing import Any, Final

import pytest

IMPORTED_BY_COLLECTION: Final = pytest.StashKey[frozenset[str]]()
"""The modules that a process has imported when its tests are collected."""
SHARED: Final = {
    "stack": ("tests/integration/acceptance/",),
    "spark": (
        "tests/unit/removal/purge/spark/test_engine.py",
        "tests/unit/removal/purge/spark/test_lease.py",
        "tests/persistence/spark/test_spark_sweep.py",
        "tests/unit/removal/purge/oracle/test_spark.py",
        "tests/faults/crashes/test_matrix.py",
        "tests/contract/orphans/test_engines.py",
        "tests/unit/removal/expiry/spark/test_engine.py",
    ),
    # Their JVM has the runtime of Iceberg, which a running one cannot get.
    "rewrites": ("tests/rewrites/",),
    # Each process would start DynamoDB Local, too.
    "dynamodb": (
        *(f"tests/contract/{name}/" for name in ("tasks", "pauses", "mutations", "costs")),
        "tests/persistence/contract/",
        *(f"tests/contract/test_{name}_store.py" for name in ("idempotency", "health", "reference", "tombstone")),
        "tests/persistence/linearizability/",
        "tests/golden/test_upgrade.py",
        "tests/integration/local/test_dynamodb.py",
        "tests/integration/test_workers.py",
    ),
    # They read the syntax trees of the same files.
    "sources": (
        "tests/unit/repository/",
        *(f"tests/unit/test_{name}.py" for name in ("error_classes", "counting")),
        *(f"tests/unit/{name}/test_problems.py" for name in ("cli", "edge")),
        "tests/unit/extras/test_build.py",
        "tests/unit/storage/listing/test_answers.py",
        "tests/unit/tasks/authoring/test_attempt_endings.py",
    ),
    # Node starts once, and the app is synthesized once.
    "infra": ("tests/infra/",),
}
FIRST: Final = (
    *(f"tests/integration/acceptance/test_{name}.py" for name in ("requests", "callers", "properties", "replays")),
    "tests/integration/acceptance/",
    "tests/integration/local/test_demo.py",
    "tests/faults/",
    *SHARED["spark"],
    *SHARED["rewrites"],
    *SHARED["dynamodb"],
    *SHARED["sources"],
    "tests/integration/",
    "tests/infra/",
    "tests/contract/",
    "tests/counts/",
    "tests/unit/upkeep/execution/test_bad_tables.py",
    "tests/unit/removal/",
    "tests/unit/references/",
    "tests/persistence/",
    "tests/unit/tasks/",
)


def scope(nodeid: str) -> str:
    """Return the name of a test's group; tests of one group run in one process."""
    file = nodeid.partition("::")[0]
    return next((name for name, places in SHARED.items() if file.startswith(places)), file)


def rank(nodeid: str) -> int:
    """Return the position of a test in the starting order."""
    return next((number for number, place in enumerate(FIRST) if nodeid.startswith(place)), len(FIRST))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return xdist's scheduler by file, with SHARED kept together; xdist may be absent without `-n`."""
    from xdist.scheduler import LoadFileScheduling

    class SharedScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return SharedScheduling(config, log)
