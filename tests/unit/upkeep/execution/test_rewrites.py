"""Policies of compactions become tasks: by what a health shows, within the operator's limits, and never twice a day."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.policies import PolicyTarget, StoredPolicy
from delegation.rewrites.requests import TableCompaction, TableManifestsRewrite
from delegation.rewrites.task_type import (
    COMPACTION,
    COMPACTION_PLAN,
    COMPACTION_TASK_TYPE,
    MANIFESTS,
    MANIFESTS_PLAN,
    MANIFESTS_TASK_TYPE,
)
from delegation.rewrites.terms import DEFAULT_MIN_INPUT_FILES, CompactionLimits, CompactionTerms
from delegation.storage.memory import Killed
from delegation.tasks.life.declared import TaskTypes
from delegation.tasks.life.model import Task
from delegation.upkeep.execution.asked import compaction_of
from delegation.upkeep.execution.kinds import UpkeepCounts
from delegation.upkeep.execution.passes import run_kinds
from delegation.upkeep.execution.permissions import PolicyPermissions
from delegation.upkeep.execution.rewrites import (
    PolicyCompactions,
    PolicyManifestsRewrites,
    PolicyRewrites,
    compaction_need,
    manifests_need,
)
from delegation.upkeep.health.model import TableHealth
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.rules.model import FindingCode, PolicyType
from delegation.upkeep.schedule import Budget, PolicyTerms, Window
from delegation.wire.requests import TableState
from delegation.wiring.types import TYPES, default_properties
from tests.kit.tasks.services import task_service
from tests.unit.upkeep.execution.catalogs import NOW, UpkeepWorld, killing, named

DATA = PolicyType.DATA_COMPACTION
METADATA = PolicyType.METADATA_COMPACTION
ALLOWED = UpkeepLimits(types=frozenset({DATA, METADATA}))
ON: dict[str, Any] = {"enable": True}
MIB = 1024**2
_REWRITES = (COMPACTION, COMPACTION_PLAN, MANIFESTS, MANIFESTS_PLAN)
WITH_REWRITES = TaskTypes([*(one for one in _REWRITES if one.name not in TYPES), *TYPES.values()])


class Fleet(UpkeepWorld):
    """Tables of many small files with policies of compactions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        properties = default_properties()
        self.tasks = task_service(self.store, properties, self.queue, clock=lambda: self.now, types=WITH_REWRITES)

    def attach(self, content: Any = ON, *levels: str, type_: PolicyType = DATA, name: str = "compact") -> None:
        document = content if isinstance(content, str) else json.dumps(content)
        self.policies.attached[PolicyTarget("lake", levels or ("ns",))] = StoredPolicy(type_.value, name, document, 0)

    def configure(self, config: dict[str, Any]) -> None:
        self.attach({"enable": True, "config": config})

    def table(self, name: str = "t", *, small: int = 500, size: int = 100 * MIB, **health: Any) -> None:
        self.write(name, [1.0])
        self.seen(name, files=small, bytes=size, small_files=small, small_bytes=size, **health)

    def seen(self, name: str, **changes: Any) -> None:
        """Store what the health task reads now."""
        self.healths.put(replace(self.health(name), as_of=self.now, **changes))

    def compactions(self, **changes: Any) -> PolicyCompactions:
        return PolicyCompactions(**{**self.parts(), "tasks": self.tasks, "limits": ALLOWED, **changes})

    def made(self, **changes: Any) -> UpkeepCounts:
        return run_kinds((self.compactions(**changes),), "lake")

    def compact(self, **changes: Any) -> int:
        return self.made(**changes).started

    def asked(self) -> TableCompaction:
        [task] = self.all_tasks()
        return TableCompaction.of(task)

    def end(self, name: str = "t", *, error: str | None = None, **details: Any) -> Task:
        return self.finish(name, error=error, details=details, task_type=COMPACTION_TASK_TYPE)

    def outcome(self, name: str = "t") -> str | None:
        return self.health(name).runs[COMPACTION_TASK_TYPE].outcome


@pytest.fixture
def world() -> Fleet:
    world = Fleet()
    world.table()
    world.attach()
    return world


def test_an_attached_policy_becomes_a_compaction_with_its_options_and_its_name(world: Fleet) -> None:
    sizes = {"target_file_size_bytes": 1_000_000, "min-input-files": 7, "delete-file-threshold": 2}
    more = {"compaction_strategy": "bin-pack", "max-concurrent-file-group-rewrites": 3}
    world.configure({**sizes, **more, "cold-after": "2h", "min-benefit": 1.5})
    assert world.compact() == 1
    asked = world.asked()
    assert (asked.task_type, asked.policy, asked.identifier) == (COMPACTION_TASK_TYPE, "lake.gov.compact", named("t"))
    assert CompactionTerms.of(asked.properties) == CompactionTerms(
        target_file_size_bytes=1_000_000,
        concurrent_rewrites=3,
        min_input_files=7,
        delete_file_threshold=2,
        cold_after=timedelta(hours=2),
        min_benefit=1.5,
    )


def test_a_silent_policy_has_the_tables_size_and_the_operators_settings(world: Fleet) -> None:
    limits = replace(ALLOWED, compaction=CompactionLimits(timedelta(minutes=5), 2.0, 4))
    assert world.compact(limits=limits) == 1
    terms = CompactionTerms.of(world.asked().properties)
    assert terms.target_file_size_bytes is None
    assert (terms.cold_after, terms.min_benefit, terms.concurrent_rewrites) == (timedelta(minutes=5), 2.0, 4)


def test_no_policy_is_looser_than_the_operator(world: Fleet) -> None:
    world.configure({"cold-after": "1m", "min-benefit": 1, "max-concurrent-file-group-rewrites": 900})
    limits = replace(ALLOWED, compaction=CompactionLimits(timedelta(hours=3), 2.0, 4))
    rule = compaction_of(named("t"), world.policies.applicable(PolicyTarget.of(named("t"))), {}, limits)
    terms = CompactionTerms.of(rule.asked.options)
    assert (terms.cold_after, terms.min_benefit, terms.concurrent_rewrites) == (timedelta(hours=3), 2.0, 4)
    assert {finding.code for finding in rule.shown.findings} == {FindingCode.LIMIT_APPLIED}


@pytest.mark.parametrize("config", [{"cold-after": "soon"}, {"min-benefit": -1}, {"cold_aftr": "1h"}, {"spec-ids": 1}])
def test_a_wrong_or_misspelled_key_turns_a_policy_off_and_an_unknown_one_is_reported(world, config):
    world.configure(config)
    counts = world.made()
    is_unknown = "spec-ids" in config
    assert counts.started == is_unknown
    assert bool(counts.invalid) != is_unknown
    rule = compaction_of(named("t"), world.policies.applicable(PolicyTarget.of(named("t"))), {}, ALLOWED)
    codes = {FindingCode.POLICY_KEYS_UNKNOWN} if is_unknown else {FindingCode.POLICY_INVALID}
    assert {finding.code for finding in rule.shown.findings} == codes


def test_policies_of_a_table_that_needs_nothing_are_not_read(world: Fleet) -> None:
    world.seen("t", small_files=4, small_bytes=40)
    assert world.compact() == 0
    assert world.policies.asked == {}


def test_sorting_a_table_without_an_order_is_turned_off(world: Fleet) -> None:
    world.configure({"compaction_strategy": "sort"})
    assert (world.compact(), world.outcome()) == (0, "OFF")
    order = {"sort-orders": [{"order-id": 1, "fields": [{"source-id": 1}]}], "default-sort-order-id": 1}
    world.documents["t"].update(order)
    world.later(days=1)
    assert world.compact() == 1


def test_a_table_is_compacted_once_a_day_and_only_while_it_needs_it(world: Fleet) -> None:
    assert world.compact() == 1
    assert world.compact() == 0
    world.end(files_rewritten=500, files_added=1, bytes_rewritten=7)
    world.later(hours=1)
    assert world.compact() == 0
    run = world.health("t").runs[COMPACTION_TASK_TYPE]
    assert (run.outcome, run.used.files, run.used.bytes, run.failures) == ("SUCCESS", 500, 7, 0)
    world.later(days=1)
    world.seen("t", files=1, small_files=1, small_bytes=9)
    assert world.compact() == 0
    world.seen("t", files=9, small_files=9, small_bytes=9)
    assert world.compact() == 1
    assert world.submissions() == 2


@pytest.mark.parametrize(
    ("details", "outcome"), [({}, "NOTHING_DONE"), ({"groups_put_off": 2}, "PUT_OFF")], ids=["nothing", "conflicts"]
)
def test_a_run_that_did_nothing_waits_a_day_as_well(world: Fleet, details: dict[str, int], outcome: str) -> None:
    world.compact()
    world.end(files_rewritten=0, **details)
    world.later(hours=20)
    assert (world.compact(), world.outcome()) == (0, outcome)
    world.later(hours=5)
    assert world.compact() == 1


def test_a_policy_that_is_detached_starts_no_more_runs_and_stops_the_running_one(world: Fleet) -> None:
    world.table("u")
    closed = UpkeepSettings(PolicyTerms(budget=Budget(files=600)))
    assert world.compact(settings=closed) == 1
    [task] = world.all_tasks()
    name = TableCompaction.of(task).identifier.name
    running = TableCompaction.of(task)
    permitted = PolicyPermissions(world.policies, ALLOWED).of_rewrite(running)
    assert permitted(world.loaded(name)) is None
    world.policies.detach("ns")
    assert permitted(world.loaded(name)) == (
        "the policy lake.gov.compact no longer requires this (no policy of this type applies)"
    )
    world.end(name, findings=[{"code": "POLICY_WITHDRAWN", "count": 1}])
    world.later(days=2)
    assert world.compact() == 0
    assert (world.outcome(name), world.health(name).runs[COMPACTION_TASK_TYPE].failures) == ("STOPPED", 0)
    assert len(world.all_tasks()) == 1


OFF = {"delegation.policy.data-compaction.enable": "false"}


@pytest.mark.parametrize(
    ("event", "limits", "reason"),
    [
        (lambda world: None, ALLOWED, "permitted"),
        (lambda world: world.attach({"enable": False}), ALLOWED, "lake.gov.compact no longer requires this"),
        (lambda world: world.attach("broken"), ALLOWED, "no longer requires this"),
        (lambda world: world.attach(name="other"), ALLOWED, "the policy lake.gov.other applies now instead"),
        (lambda world: world.configure({"cold-after": "2h"}), ALLOWED, "now requires another value of cold-after"),
        (lambda world: world.configure({"target_file_size_bytes": 5}), ALLOWED, "value of target-file-size-bytes"),
        (lambda world: world.configure({"compaction_strategy": "sort"}), ALLOWED, "another value of strategy"),
        (lambda world: world.documents["t"].update(properties=OFF), ALLOWED, "no longer requires this"),
        (lambda world: None, replace(ALLOWED, dry_run_only=True), "the operator now allows only plans"),
        (lambda world: None, UpkeepLimits(), "delegation.upkeep.types does not allow it"),
    ],
)
def test_what_a_policy_permits_while_its_task_runs(world, event, limits, reason) -> None:
    state = TableState.of(world.loaded("t"))
    world.compact()
    running = world.asked().model_copy(update={"table": state})
    event(world)
    found = PolicyPermissions(world.policies, limits).of_rewrite(running)(world.loaded("t"))
    assert reason in (found or "permitted")


def test_a_callers_own_rewrite_needs_no_policy(world: Fleet) -> None:
    state = TableState.of(world.loaded("t"))
    own = TableCompaction(realm="R", identifier=named("t"), table=state)
    world.policies.attached.clear()
    assert PolicyPermissions(world.policies, ALLOWED).of_rewrite(own)(world.loaded("t")) is None
    assert world.policies.asked == {}


@pytest.mark.parametrize("at", range(1, 8))
def test_a_process_that_is_killed_at_any_moment_starts_one_run(world: Fleet, at: int) -> None:
    with suppress(Killed):
        world.compact(checkpoint=killing(at))
    for _ in range(3):
        world.later(minutes=15)
        world.compact()
    assert world.submissions() == 1


def test_a_purge_or_a_callers_compaction_leaves_the_table_alone(world: Fleet) -> None:
    world.compact()
    [task] = world.all_tasks()
    health = world.health("t")
    world.healths.put(replace(health, runs={}))
    assert world.compact() == 0
    assert world.all_tasks() == [task]


def test_below_the_least_benefit_nothing_is_started(world: Fleet) -> None:
    need = compaction_need(world.health("t"))
    world.configure({"min-benefit": round(need.per_cost) + 10})
    assert world.compact() == 0
    world.configure({"min-benefit": round(need.per_cost) - 10})
    assert world.compact() == 1


def test_the_most_gain_for_its_cost_is_first_and_a_quarter_of_the_places_is_kept_for_short_runs(world: Fleet) -> None:
    world.table("a", small=500, size=50_000 * MIB)
    world.table("b", small=5_000, size=200 * MIB)
    assert world.compact(settings=UpkeepSettings(at_once=1)) == 1
    assert world.asked().identifier == named("b")
    for name in "uvwx":
        world.table(name)
    counts = world.made(settings=UpkeepSettings(at_once=5))
    assert (counts.started, counts.waiting) == (3, {"the maximum number of policy runs is in progress": 3})


def test_a_table_that_is_written_every_day_has_waited_since_its_first_need(world: Fleet) -> None:
    waits: list[timedelta] = []
    window = Window("0 1 1 1 *", timedelta(hours=1))

    def passes() -> None:
        world.made(waited=lambda wait, _table: waits.append(wait), settings=UpkeepSettings(PolicyTerms(window)))

    for _ in range(9):
        passes()
        world.later(days=1)
        world.seen("t")
    assert waits[-1] == timedelta(days=8)
    world.seen("t", small_files=0, small_bytes=0)
    passes()
    world.seen("t", small_files=500, small_bytes=100 * MIB)
    passes()
    assert waits[-1] == timedelta(0), "another writer compacted it meanwhile"


def health(**numbers: Any) -> TableHealth:
    return TableHealth(TableIdentifier("lake", ("ns",), "t"), "u", "m", NOW, **numbers)


def test_the_need_of_a_compaction_counts_small_files_and_deletes() -> None:
    assert compaction_need(health(files=9)) is None
    assert compaction_need(health(files=9, small_files=DEFAULT_MIN_INPUT_FILES - 1, small_bytes=4)) is None
    assert compaction_need(health(files=9, small_files=DEFAULT_MIN_INPUT_FILES, small_bytes=5)) is not None
    small = compaction_need(health(files=9, bytes=90, small_files=9, small_bytes=90))
    assert (small.gain, small.files, small.bytes) == (8, 9, 90)
    deletes = compaction_need(health(files=10, bytes=100, deletion_vectors=3))
    assert (deletes.gain, deletes.files, deletes.bytes) == (3, 3, 30)
    assert deletes.per_cost > 0
    apart = compaction_need(health(files=10, bytes=100, delete_files=3))
    assert apart == deletes  # `files` are data files
    # A file of 400 bytes has the deletes, not one of the average of 49.
    assert compaction_need(health(files=9, bytes=440, small_files=8, small_bytes=40, deletion_vectors=1)).bytes == 440


def test_the_need_of_manifests_is_half_as_many() -> None:
    assert manifests_need(health(manifests=1, manifest_bytes=10)) is None
    assert manifests_need(health(manifests=3, manifest_bytes=20 * MIB)) is None
    need = manifests_need(health(manifests=30, manifest_bytes=20 * MIB))
    assert need.files == 30
    assert need.gain >= 27


def test_a_policy_of_manifests_becomes_a_rewrite_of_manifests() -> None:
    world = Fleet()
    world.table(manifests=40, manifest_bytes=MIB)
    world.attach({"enable": True, "config": {"spec_id": 2}}, type_=METADATA, name="tidy")
    kind = PolicyManifestsRewrites(**{**world.parts(), "tasks": world.tasks, "limits": ALLOWED})
    assert isinstance(kind, PolicyRewrites)
    assert run_kinds((kind,), "lake").started == 0, "the table has no such spec"
    world.later(days=2)
    world.attach({"enable": True, "config": {"spec_id": 0}}, type_=METADATA, name="tidy")
    assert run_kinds((kind,), "lake").started == 1
    [task] = world.all_tasks()
    asked = TableManifestsRewrite.of(task)
    assert (asked.policy, asked.properties) == ("lake.gov.tidy", {"min-benefit": "0", "spec-id": "0"})
    permitted = PolicyPermissions(world.policies, ALLOWED).of_rewrite(asked)
    assert permitted(world.loaded("t")) is None
    world.finish("t", details={"manifests_before": 40, "manifests_after": 1}, task_type=MANIFESTS_TASK_TYPE)
    world.attach({"enable": True}, type_=METADATA, name="tidy")
    assert permitted(world.loaded("t")) == "the policy lake.gov.tidy now requires another value of spec-id"
    assert run_kinds((kind,), "lake").started == 0
    run = world.health("t").runs[MANIFESTS_TASK_TYPE]
    assert (run.outcome, run.used.files) == ("SUCCESS", 40)


def test_a_table_may_turn_its_compaction_off(world: Fleet) -> None:
    world.documents["t"]["properties"] = OFF
    assert world.compact() == 0
    assert world.outcome() == "OFF"
