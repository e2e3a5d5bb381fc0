"""Compactions of tables in a catalog by a shared worker, whose tasks are in memory."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.removal.choice import RemovalSettings
from delegation.rewrites.behavior import RewriteBehavior
from delegation.rewrites.kinds import Compactions
from delegation.rewrites.requests import TableCompaction
from delegation.rewrites.task_type import COMPACTION_TASK_TYPE
from delegation.rewrites.worker import SessionWorker, SharedSession, SharedWorker, WorkerLimits
from delegation.storage.memory import MemoryPlanStore
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.work.behaviors import Behaviors, BehaviorWhenNeeded
from delegation.tasks.work.worker import WorkerSettings
from delegation.timestamps import elapsed, utc_now
from delegation.wire.requests import TableState
from delegation.wiring.table_access import vended_table
from delegation.wiring.types import TYPES, default_properties
from tests.kit.tasks.services import task_service

REALM = "POLARIS"


class SharedRewrites:
    """A shared worker over a session; `open_client` returns the service's client of the catalog."""

    def __init__(self, open_client: Callable[[], PolarisClient], *, at_once: int = 2) -> None:
        self.client = open_client()
        self.at_once = at_once
        policies = Policies.from_properties(default_properties())
        self.tasks = task_service(
            policies=replace(policies, dispatch=replace(policies.dispatch, grace=timedelta(0))),
            clock=utc_now,
            types=TYPES,
        )
        self.plans = MemoryPlanStore()

    def ask(self, identifier: TableIdentifier, **properties: str) -> Task:
        """Submit a compaction of a table, which need not be cold."""
        loaded = self.client.load_table(identifier, vend=False)
        work = TableCompaction(
            realm=REALM,
            identifier=identifier,
            table=TableState.of(loaded),
            properties={"cold-after": "0", "min-input-files": "2", **properties},
        )
        first = self.tasks.submission.first(
            task_id=work.task_id, task_type=COMPACTION_TASK_TYPE, payload=work.to_payload()
        )
        return self.tasks.submission.create(first)[0]

    def behavior(self, session: SharedSession | None) -> RewriteBehavior:
        return RewriteBehavior(
            tasks=self.tasks,
            kind=Compactions(),
            requests=self.client.requests,
            open_table=lambda identifier: vended_table(self.client, identifier, clock=utc_now),
            plans=self.plans,
            settings=RemovalSettings(has_spark=True),
            session=session,
        )

    def rewrite(self, session: SharedSession, tasks: Sequence[Task]) -> list[Task]:
        """Work until the tasks have ended, and return them."""
        behavior = self.behavior(session)
        behaviors = Behaviors([BehaviorWhenNeeded(frozenset({COMPACTION_TASK_TYPE}), lambda: behavior)])
        stop = threading.Event()
        workers = [
            SessionWorker(
                self.tasks,
                behaviors,
                WorkerSettings(f"worker/{number}", poll=timedelta(milliseconds=50)),
                places=session.places,
                stop=stop,
            )
            for number in range(self.at_once)
        ]

        def seconds() -> float:
            if all(self.tasks.reads.get(task.task_id).is_terminal for task in tasks):
                stop.set()
            return elapsed()

        SharedWorker(
            self.tasks, session, workers, WorkerLimits(self.at_once), stop, now=seconds, poll_seconds=0.05
        ).run()
        return [self.tasks.reads.get(task.task_id) for task in tasks]
