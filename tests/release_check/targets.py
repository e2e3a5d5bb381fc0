"""The long targets of the Makefile, in one place: how each is run, and for how long at most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

LANDINGS: Final = 15
"""After so many landings every target has run."""
MINUTES: Final = 45
"""A landing runs targets whose bounds are at most so many minutes together, and one at least.

The bounds are wide, because a target that is stopped fails its landing: most landings take a third of it.
"""


@dataclass(frozen=True, slots=True)
class LongTarget:
    """What `make` is given, and after how many minutes it is stopped, which is a failure.

    The words limit a target that takes more than ten minutes on two quiet processors to a part of it; the bound is at
    least twice what its record says, because CI's machine may do other work.
    """

    name: str
    minutes: int
    words: tuple[str, ...]

    @property
    def tries(self) -> int:
        """How often it is run until it passes: timings differ on a machine that others use as well."""
        return 2 if self.words[0].startswith("bench") else 1


def _whole(minutes: int, *names: str) -> list[LongTarget]:
    return [LongTarget(name, minutes, (name,)) for name in names]


def _part(minutes: int, target: str, *words: str, of: str = "") -> LongTarget:
    return LongTarget(f"{target}-{of}" if of else target, minutes, (target, *words))


_JOBS: Final = "tests/integration/local/trial/test_rewrites.py"
_REWRITES: Final = " ".join(f"tests/rewrites/test_{name}.py" for name in ("kills", "policies", "rows", "writers"))

TARGETS: Final[tuple[LongTarget, ...]] = (
    *_whole(15, "localstack-test"),
    *_whole(8, "package", "upgrade-both-ways"),
    *_whole(5, "bench-check"),
    _part(6, "bench", "BENCH=cold", "ARGS=--build --handlers api run_inline authorizer", of="cold"),
    _part(10, "test", "THOROUGH=1", "ARGS=-m long tests/contract tests/alarms/test_restore.py", of="contract"),
    _part(12, "test", "THOROUGH=1", "ARGS=-m long tests/golden tests/unit", of="unit"),
    _part(8, "test", "THOROUGH=1", "ARGS=-m long tests/infra --ignore tests/infra/rule", of="infra"),
    _part(20, "test", "THOROUGH=1", f"ARGS=-m long tests/integration --ignore {_JOBS}", of="integration"),
    _part(20, "test", "THOROUGH=1", f"ARGS=-m long {_JOBS}", of="integration-rewrites"),
    _part(8, "test", "THOROUGH=1", "ARGS=-m long tests/faults", of="faults"),
    _part(18, "test", "THOROUGH=1", f"ARGS=-m long {_REWRITES}", of="rewrites"),
    _part(18, "test", "THOROUGH=1", "ARGS=-m long tests/rewrites/test_old_runtimes.py", of="rewrites-runtimes"),
    _part(18, "test", "THOROUGH=1", "ARGS=-m long tests/rewrites/test_random_kills.py", of="rewrites-kills"),
    _part(18, "test", "THOROUGH=1", "ARGS=-m long --dist load tests/rewrites/test_procedure.py", of="rewrites-tables"),
    _part(18, "test", "THOROUGH=1", "ARGS=-m long --dist load tests/rewrites/test_orders.py", of="rewrites-orders"),
    _part(18, "test", "THOROUGH=1", "ARGS=-m long tests/rewrites/test_live_writers.py", of="rewrites-writers"),
    _part(6, "test", "THOROUGH=1", "ARGS=tests/persistence", of="persistence"),
    _part(6, "crash-matrix", "ARGS=--engine inline"),
    _part(6, "crash-matrix", "OPERATION=expiry", "ARGS=10", of="expiry"),
    _part(6, "crash-matrix", "OPERATION=orphans", "ARGS=20", of="orphans"),
    _part(4, "busy", "HISTORIES=500"),
    _part(4, "busy", "FILES=1000", of="hours"),
    _part(6, "oracle", "ARGS=--way direct"),
    _part(14, "hostile", "ARGS=--size small --engine inline"),
    _part(8, "histories", "HISTORIES=500"),
    _part(5, "orphans-histories", "HISTORIES=300"),
    _part(5, "simulate", "SEEDS=500"),
    _part(6, "mutants", "TEXT=child"),
    _part(6, "applier-fuzz", "SEQUENCES=2000"),
    _part(6, "expiry-fuzz", "SEQUENCES=2000"),
    _part(6, "expiry-oracle", "ARGS=--only branches"),
    _part(6, "orphans-oracle", "ARGS=--only branches"),
    _part(12, "drill", "TASKS=200"),
    _part(14, "chaos", "MINUTES=4", "SEED=7"),
    _part(10, "linearizability", "SECONDS=60"),
    _part(5, "drain", "TASKS=5000"),
    _part(10, "schemathesis", "ARGS=--ours 60 --appendix 100"),
    _part(5, "gateway-interleavings", "SEEDS=500"),
    _part(5, "gateway-stories", "SEEDS=300"),
    _part(6, "gateway-matrix", "ARGS=--part 1/4"),
    *_whole(12, "upkeep-month"),
    *_whole(8, "canonical", "pairing-check", "chart-check", "sam-check", "client-check"),
    *_whole(8, "gateway-rule", "gateway-kit", "gateway-pyiceberg", "gateway-clients", "clients-check"),
    _part(8, "gateway-kit", "ARGS=--on states", of="states"),
    _part(8, "gateway-pyiceberg", "ARGS=--on states", of="states"),
    *_whole(10, "alarms-drill", "s3-servers-test", "docs"),
    *_whole(14, "deployment-check"),
)
NOT_LONG: Final[Mapping[str, str]] = {
    "help-all": "prints",
    "release": "tags; tests/infra/test_release.py has what it refuses",
    "venv": "a part of every target",
    "clean": "removes",
    "wheel": "client-check and tests/integration/wheel build and install one",
    "format": "writes sources",
    "demo": "for people; tests/integration/acceptance runs the same walk",
    "up": "runs until Ctrl-C",
    "check": ".ci/run runs it at each landing",
    "regenerate": "writes; each generated file has a test that compares it",
    "fixtures": "writes; tests read what it wrote",
    "recorded-calls": "writes; tests compare the roles with the record",
    "template-diffs": "writes; tests/infra/deploying compares the record",
    "bench-record": "writes what bench-check compares with",
    "release-check": "runs this list",
}
"""The other targets, and why no landing runs them after its tests."""


def due(records: Mapping[str, datetime], targets: Sequence[LongTarget] = TARGETS) -> list[LongTarget]:
    """Return what a landing runs: the targets whose records are oldest, those without one first, within MINUTES."""
    oldest = sorted(targets, key=lambda one: records[one.name].timestamp() if one.name in records else 0.0)
    chosen: list[LongTarget] = []
    for target in oldest:
        if chosen and sum(one.minutes for one in chosen) + target.minutes > MINUTES:
            break
        chosen.append(target)
    return chosen
