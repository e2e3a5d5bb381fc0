"""Mutants of the decision which snapshots expire, of its bounds and of its guards."""

from typing import Final

from tests.mutants.mutant import Mutant

RETENTION: Final = "functions/delegation/operations/expiry/retention.py"
BEHAVIOR: Final = "functions/delegation/operations/expiry/behavior/"
RECORDED: Final = "tests/unit/operations/expiry/test_recorded.py"
RULE: Final = "tests/unit/operations/expiry/test_retention.py"
OPTIONS: Final = "tests/unit/operations/expiry/test_options.py"
GUARDS: Final = "tests/unit/operations/expiry/test_guards.py"
LOOKS: Final = "functions/delegation/operations/expiry/running/looks.py"
DELETE_STEPS: Final = "functions/delegation/operations/expiry/running/delete_steps.py"
COMMITTING: Final = "functions/delegation/operations/expiry/committing.py"
REFS: Final = "tests/unit/operations/expiry/attacks/test_refs.py"
FILES: Final = "tests/unit/operations/expiry/attacks/test_files.py"
TABLES: Final = "tests/unit/operations/expiry/attacks/test_tables.py"
REQUESTS: Final = "tests/unit/operations/expiry/test_requests.py"
SHARED_REQUESTS: Final = "tests/contract/upkeep/test_requests.py"

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
    Mutant(
        "a branch's own age passes the operator's",
        RETENTION,
        "min(limit, self.newest)",
        "limit",
        (OPTIONS,),
    ),
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
        f"{BEHAVIOR}options.py",
        "if not 0 <= found <= asked_ms:",
        "if not 0 <= found:",
        (OPTIONS,),
    ),
    Mutant(
        "encrypted manifest lists are not refused",
        "functions/delegation/operations/expiry/guards.py",
        "    if encrypted is not None:\n",
        "    if False:\n",
        (GUARDS,),
    ),
    Mutant(
        "a table is not checked before its task is accepted",
        "functions/delegation/operations/behaviors/requests.py",
        "        check(loaded)\n",
        "",
        (f"{SHARED_REQUESTS}::test_a_table_that_a_guard_refuses_gets_no_task",),
    ),
    Mutant(
        "an expiry that failed after its commit gives way to another one",
        f"{BEHAVIOR}relation.py",
        "        if current is None or current.of_the_work() == wanted.of_the_work() or not resumes(task, wanted):\n",
        "        if True:\n",
        (f"{REQUESTS}::test_an_expiry_that_failed_after_its_commit_is_finished_before_another_one",),
    ),
    Mutant(
        "an expiry starts again with the plan of a former one",
        "functions/delegation/operations/behaviors/task_types.py",
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
        "if versions_kept(metadata_of(table)) is None:",
        "if False:",
        (TABLES,),
    ),
    Mutant(
        "what a reader opens instead of what a path names does not stay",
        "functions/delegation/operations/expiry/planning/reach.py",
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
)
