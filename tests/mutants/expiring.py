"""Mutants of expiries: which snapshots expire, bounds, guards; of their upkeep, and of deletes of orphan files."""

from typing import Final

from tests.mutants.mutant import Mutant

RETENTION: Final = "functions/delegation/removal/expiry/retention.py"
REMOVAL: Final = "functions/delegation/removal/expiry/"
RECORDED: Final = "tests/unit/removal/expiry/test_recorded.py"
RULE: Final = "tests/unit/removal/expiry/test_retention.py"
OPTIONS: Final = "tests/unit/removal/expiry/test_options.py"
GUARDS: Final = "tests/unit/removal/expiry/test_guards.py"
LOOKS: Final = "functions/delegation/removal/expiry/commit.py"
DELETE_STEPS: Final = "functions/delegation/removal/expiry/run.py"
COMMITTING: Final = "functions/delegation/removal/expiry/commit.py"
REFS: Final = "tests/unit/removal/expiry/attacks/test_refs.py"
FILES: Final = "tests/unit/removal/expiry/attacks/test_files.py"
TABLES: Final = "tests/unit/removal/expiry/attacks/test_tables.py"
REQUESTS: Final = "tests/unit/removal/expiry/test_requests.py"
SHARED_REQUESTS: Final = "tests/contract/upkeep/test_requests.py"
ORDERS: Final = "tests/unit/removal/expiry/test_orders.py"
OUTCOMES: Final = "tests/unit/removal/expiry/attacks/test_commit_outcomes.py"
NEEDS: Final = "functions/delegation/upkeep/execution/expiries.py"
KINDS: Final = "functions/delegation/upkeep/execution/kinds.py"
PASSES: Final = "tests/unit/upkeep/execution/test_passes.py"
SWEEPS: Final = "tests/unit/removal/orphans/test_orders.py"

EXPIRING: Final = (
    Mutant(
        "a snapshot exactly at the limit expires",
        RETENTION,
        "if age is not None and snapshot.timestamp_ms >= age[0]:",
        "if age is not None and snapshot.timestamp_ms > age[0]:",
        (RULE,),
    ),
    Mutant(
        "main expires by age",
        RETENTION,
        "return None if ref.name == MAIN or limit == LONG[-1] else limit",
        "return None if limit == LONG[-1] else limit",
        (RECORDED,),
    ),
    Mutant(
        "the age of a branch with fewer snapshots than another is forgotten",
        RETENTION,
        "since[parent] = min(since.get(parent, age), age)",
        "since.setdefault(parent, age)",
        (RULE,),
    ),
    Mutant(
        "the last branch decides how many snapshots of a shared history are kept",
        RETENTION,
        "remaining[parent] = max(remaining.get(parent, handed), handed)",
        "remaining[parent] = handed",
        (RULE,),
    ),
    Mutant(
        "a named snapshot goes although a tag is at it",
        RETENTION,
        "    _refuse_referenced(retention.snapshot_ids, refs)\n",
        "",
        (RULE,),
    ),
    Mutant(
        "a snapshot that no ref reaches goes whatever its age",
        RETENTION,
        'reasons[snapshot.snapshot_id] = KeptSnapshot("unreferenced")',
        "pass",
        (RECORDED,),
    ),
    Mutant(
        "schemas go although one of a kept snapshot is not known",
        RETENTION,
        "    if None in used:\n        return frozenset()\n",
        "",
        (RULE,),
    ),
    Mutant(
        "a snapshot that is only named does not count for specs",
        RETENTION,
        "return Decision(gone, kept, ages, frozenset(retained))",
        "return Decision(gone, kept, ages, frozenset(kept))",
        (RULE,),
    ),
    Mutant("a branch's own age passes the operator's", RETENTION, "min(limit, self.newest)", "limit", (OPTIONS,)),
    Mutant(
        "a branch's own number passes the operator's",
        RETENTION,
        "max(count, self.least_snapshots)",
        "count",
        (OPTIONS,),
    ),
    Mutant(
        "a named snapshot passes the operator's age",
        RETENTION,
        "        _refuse_young(retention.snapshot_ids, table, limits.newest)\n",
        "        pass\n",
        (OPTIONS,),
    ),
    Mutant(
        "a time in the future is accepted",
        f"{REMOVAL}requests.py",
        "if not 0 <= milliseconds <= asked_ms:",
        "if not 0 <= milliseconds:",
        (OPTIONS,),
    ),
    Mutant(
        "encrypted manifest lists are not refused",
        "functions/delegation/removal/expiry/errors.py",
        "    if encrypted is not None:\n",
        "    if False:\n",
        (GUARDS,),
    ),
    Mutant(
        "a table is not checked before its task is accepted",
        "functions/delegation/removal/requests.py",
        "            check(loaded)\n",
        "",
        (f"{SHARED_REQUESTS}::test_a_table_that_a_guard_refuses_gets_no_task",),
    ),
    Mutant(
        "an expiry that failed after its commit gives way to another one",
        "functions/delegation/removal/requests.py",
        "            if current is None or self.is_same(task, current) or not self.resumes(task):\n",
        "            if True:\n",
        (f"{REQUESTS}::test_an_expiry_that_failed_after_its_commit_is_finished_before_another_one",),
    ),
    Mutant(
        "an expiry starts again with the plan of a former one",
        "functions/delegation/removal/details.py",
        "if name not in gone}",
        "}",
        (f"{REQUESTS}::test_after_a_success_the_same_request_runs_again",),
    ),
    Mutant(
        "a ref that was made or moved since the plan goes with its snapshot",
        COMMITTING,
        "now = decided(ctx, table, others)",
        "now = decided(ctx, table)",
        (REFS,),
    ),
    Mutant(
        "refs are compared once",
        DELETE_STEPS,
        "if not gone_of(self._plan.index.removal, table) <= {*self.removed.snapshot_ids}:",
        "if False:",
        (REFS,),
    ),
    Mutant(
        "old metadata files go although the table no longer gives them up",
        DELETE_STEPS,
        "if versions_kept(metadata_of(table)) is None and not self._keeps_former:",
        "if False:",
        (TABLES,),
    ),
    Mutant(
        "what a reader opens instead of what a path names does not stay",
        "functions/delegation/removal/expiry/planning.py",
        "for path in read_as(row[0]):",
        "for path in ():",
        (FILES,),
    ),
    Mutant(
        "a manifest that another expiry deleted ends this one",
        LOOKS,
        "if canonical(now.metadata_location) == canonical(table.metadata_location):",
        "if now:",
        (TABLES,),
    ),
    Mutant(
        "a commit without an answer is waited for an hour",
        COMMITTING,
        "UNANSWERED_FOR: Final = timedelta(hours=24)",
        "UNANSWERED_FOR: Final = timedelta(hours=1)",
        (f"{OUTCOMES}::test_a_commit_without_an_answer_is_waited_for_a_day",),
    ),
    Mutant(
        "a reduced plan has what was deleted before it",
        "functions/delegation/removal/expiry/reduction.py",
        "if chunk.kind is not Phase.KEPT and chunk.name not in done]",
        "if chunk.kind is not Phase.KEPT]",
        (f"{ORDERS}::test_a_plan_that_is_reduced_after_some_of_its_files_are_deleted_has_only_the_others",),
    ),
    Mutant(
        "a need of a former rule starts a run",
        NEEDS,
        "if not health.expirable or health.rule != asked.version or not can_be_decided(health):",
        "if not health.expirable or not can_be_decided(health):",
        (f"{PASSES}::test_a_need_of_a_former_rule_starts_nothing_until_it_is_computed_by_the_present_one",),
    ),
    Mutant(
        "the end of a former run settles one that never began",
        KINDS,
        "if task is None or (task.is_terminal and task.last_status_change_ts < run.began):",
        "if task is None:",
        (f"{PASSES}::test_a_run_whose_task_was_not_submitted_is_not_settled_by_the_end_of_the_former_run",),
    ),
    Mutant(
        "a caller's expiry is resumed as a run of a policy",
        NEEDS,
        "if former is not None and former.policy is not None and expiry.resumes(stored):",
        "if former is not None and expiry.resumes(stored):",
        (f"{PASSES}::test_a_callers_expiry_that_failed_after_its_commit_is_never_repeated_as_a_run_of_a_policy",),
    ),
    Mutant(
        "a run whose policy was withdrawn leaves the need from before it",
        NEEDS,
        '        return replace(noted, rule="", expirable=None)\n',
        "        return noted\n",
        (f"{PASSES}::test_after_a_run_whose_policy_was_withdrawn_its_need_is_computed_again",),
    ),
    Mutant(
        "orphan files: paths are not checked again before they are deleted",
        "functions/delegation/removal/orphans/deletes.py",
        '    PlanGuard(index).check_all([candidate.path for candidate in some], f"{index.plan_id}/{chunk.name}")\n',
        "",
        (f"{SWEEPS}::test_paths_are_checked_again_before_they_are_deleted_although_every_hash_matches",),
    ),
    Mutant(
        "another plan takes the place of an approved one that is lost while it is executed",
        "functions/delegation/removal/run.py",
        "if is_open and not self.replans_always:",
        "if False:",
        ("tests/unit/removal/orphans/test_consent.py",),
    ),
    Mutant(
        "what executors did not read because a manifest was missing is not read at the next look either",
        DELETE_STEPS,
        "        self._add_table(needed, table)\n        self._subtract(needed)\n",
        "        self._add_table(needed, table)\n        self._note_known(needed, table)\n"
        "        self._subtract(needed)\n",
        ("tests/unit/removal/expiry/spark/test_plans.py",),
    ),
    Mutant(
        "a plan made again is compared without what the lost one was compared with",
        DELETE_STEPS,
        "        self._begin_comparing()\n        self._plan.forget()\n",
        "        self.removed, self._seen = Removal(), SortedRows(self._ctx)\n        self._plan.forget()\n",
        ("tests/unit/removal/expiry/test_orders.py",),
    ),
    Mutant(
        "no task records that it executes an earlier plan",
        "functions/delegation/removal/run.py",
        "        record_adopted_plan(ctx.plans, ctx.attempt.task_id, index.plan_id)\n",
        "",
        ("tests/unit/removal/orphans/test_consent.py",),
    ),
)
