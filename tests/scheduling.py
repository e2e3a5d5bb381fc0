"""Which tests share a process when they run in several (`pytest -n`), and which begin first.

A file is the unit, as with `--dist loadfile`, except where files share something that takes long to start: the local
stack of the acceptance tests, and Spark's JVM. Longest first: what begins last must not be what ends last.
"""

from typing import Any, Final

import pytest

SHARED: Final = {
    "stack": ("tests/integration/acceptance/",),
    "spark": (
        "tests/unit/operations/purge/spark/test_engine.py",
        "tests/unit/operations/purge/spark/test_lease.py",
        "tests/unit/operations/purge/oracle/test_spark.py",
        "tests/faults/crashes/test_matrix.py",
    ),
}
FIRST: Final = (
    *(f"tests/integration/acceptance/test_{name}.py" for name in ("requests", "callers", "properties", "replays")),
    "tests/integration/acceptance/",
    "tests/integration/local/test_demo.py",
    "tests/faults/",
    *SHARED["spark"],
    "tests/integration/",
    "tests/infra/",
    "tests/contract/",
)


def scope(nodeid: str) -> str:
    """The name of the process that a test belongs to; equal names run one after the other in one process."""
    file = nodeid.partition("::")[0]
    return next((name for name, places in SHARED.items() if file.startswith(places)), file)


def rank(nodeid: str) -> int:
    """The place of a test in the order of starting."""
    return next((number for number, place in enumerate(FIRST) if nodeid.startswith(place)), len(FIRST))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's scheduler by file, with SHARED kept together; imported here, for xdist is there only when it is used."""
    from xdist.scheduler import LoadFileScheduling

    class SharedScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return SharedScheduling(config, log)
