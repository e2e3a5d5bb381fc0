"""A compaction by policy on a Polaris: attached, it acts; detached in the middle of a run, it commits nothing more.

The Polaris is that of POLARIS_URL (see `tests.contract.polaris.world`), otherwise the stand-in.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from delegation.identifiers import TableIdentifier
from delegation.removal.choice import RemovalSettings
from delegation.rewrites.behavior import RewriteBehavior
from delegation.rewrites.context import Performed, Rewrite, RewriteAttempt
from delegation.rewrites.fence import Gate
from delegation.rewrites.kinds import Compactions
from delegation.rewrites.spark import SparkRewriter, is_alive
from delegation.rewrites.task_type import COMPACTION_TASK_TYPE
from delegation.rewrites.worker import SharedSession
from delegation.storage.memory import MemoryPlanStore
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.behaviors import TaskBehavior
from delegation.timestamps import utc_now
from delegation.upkeep.execution.rewrites import PolicyCompactions
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.rules.model import PolicyType
from delegation.wiring.table_access import vended_table
from tests.contract.polaris.policy_service import PolicyService
from tests.contract.polaris.test_upkeep import Operator, client_of
from tests.contract.polaris.world import Polaris, PolarisView, real
from tests.integration.local.catalog_world import REALM, REGION, SCOPE
from tests.rewrites.world import RewriteWorld

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
COMPACT = json.dumps({"version": "2025-02-03", "enable": True, "config": {}})
LIMITS = UpkeepLimits(types=frozenset({PolicyType.DATA_COMPACTION}))
SMALL_FILES = 6


@dataclass
class InTheMiddle:
    """A RewriteEngine; something happens before its action is called."""

    engine: SparkRewriter
    happens: Callable[[], None] = lambda: None

    @property
    def iceberg_version(self) -> str:
        return self.engine.iceberg_version

    def perform(self, gate: Gate, rewrite: Rewrite, attempt: RewriteAttempt) -> Performed:
        self.happens()
        return self.engine.perform(gate, rewrite, attempt)


class Upkeep(PolicyService):
    """The service with compactions by policy and a Spark session."""

    def __init__(self, view: PolarisView, engine: InTheMiddle) -> None:
        super().__init__(view, client_of(view), PolicyCompactions, LIMITS)
        self.compaction = RewriteBehavior(
            tasks=self.tasks,
            kind=Compactions(),
            requests=self.client.requests,
            open_table=lambda identifier: vended_table(self.client, identifier, clock=utc_now),
            plans=MemoryPlanStore(),
            settings=RemovalSettings(has_spark=True),
            permissions=self.permissions.of_rewrite,
            session=SharedSession(engine, partial(is_alive, engine.engine.session)),
        )

    def behaviors(self) -> Sequence[TaskBehavior]:
        return [self.compaction]

    def compactions(self) -> list[Task]:
        return self.of_type(COMPACTION_TASK_TYPE)


@pytest.fixture
def view(world: RewriteWorld) -> Iterator[PolarisView]:
    stand_in = Polaris(world.stack.catalog.url, ("root", "root-secret"), "lake", REALM)
    view = PolarisView(real() or stand_in)
    yield view
    view.close()


def catalog_in_spark(world: RewriteWorld, view: PolarisView) -> str:
    """Return the name of a catalog in Spark that reaches the server as a new principal, the tables' owner."""
    name, polaris = "by_policy", view.polaris
    owner = view.credential({"type": "catalog", "privilege": "CATALOG_MANAGE_CONTENT"}, suffix="_owner")
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": polaris.url,
        ".warehouse": polaris.warehouse,
        ".credential": ":".join(owner),
        ".scope": SCOPE,
        ".oauth2-server-uri": f"{polaris.url}/v1/oauth/tokens",
        ".header.Polaris-Realm": polaris.realm,
        ".header.X-Iceberg-Access-Delegation": "vended-credentials",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".client.region": REGION,
        ".cache-enabled": "false",
    }
    for key, value in settings.items():
        world.spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name


def test_a_compaction_runs_while_its_policy_is_attached(world: RewriteWorld, view: PolarisView) -> None:
    view.namespace()
    table = f"{catalog_in_spark(world, view)}.{view.name}.t"
    identifier = TableIdentifier(view.polaris.warehouse, (view.name,), "t")
    engine = InTheMiddle(SparkRewriter(world.spark, world.fence, poll_seconds=0.1))
    upkeep, operator = Upkeep(view, engine), Operator(view)

    def append(first: int) -> None:
        rows = world.spark.range(first, first + 30, 1, SMALL_FILES).selectExpr("id")
        rows.writeTo(table).append()
        upkeep.index_tables(identifier)

    world.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg TBLPROPERTIES ('write.distribution-mode'='none')")
    view.after(world.sql, f"DROP TABLE {table}")
    append(0)

    # Without a policy nothing is rewritten.
    upkeep.begin()
    upkeep.hours(1)
    assert upkeep.compactions() == []
    assert world.files(table) == (SMALL_FILES, 0)

    # Attached to the namespace: within one pass the files are one.
    operator.create(COMPACT, "compact", "system.data-compaction")
    operator.attach("compact")
    upkeep.hours(0.3)
    [task] = upkeep.compactions()
    assert task.status is Status.SUCCESS, task.result_summary
    assert (task.details["files_rewritten"], task.details["files_added"]) == (SMALL_FILES, 1)
    assert world.files(table) == (1, 0)
    assert sorted(row[0] for row in world.rows(table)) == list(range(30))

    # Detached while the next run is in Spark: nothing is committed, and that is no failure.
    append(30)
    engine.happens = lambda: operator.detach("compact")
    before = upkeep.client.load_table(identifier, vend=False).metadata_location
    upkeep.hours(25)
    [task] = upkeep.compactions()
    assert (task.status, task.attempt_count) == (Status.SUCCESS, 2), task.result_summary
    assert task.details["findings"] == [{"code": "POLICY_WITHDRAWN", "count": 1}]
    assert (task.result_summary or "").endswith("; nothing was rewritten")
    assert upkeep.client.load_table(identifier, vend=False).metadata_location == before
    assert sorted(row[0] for row in world.rows(table)) == list(range(60))

    # And nothing follows.
    version, engine.happens = task.version, lambda: pytest.fail("a rewrite without its policy")
    for _ in range(5):
        upkeep.hours(24)
    assert [task.version for task in upkeep.compactions()] == [version]
