"""Mutants: edits of the code that remove one safeguard each, and the tests that must notice."""

from typing import Final

from tests.mutants.expiring import EXPIRING
from tests.mutants.mutant import Mutant
from tests.mutants.reading import READ
from tests.mutants.running import RUNNING

TASKS: Final = "functions/delegation/tasks/"
FAMILIES: Final = "tests/unit/tasks/work/family/test_families.py"
ADOPTING: Final = "tests/unit/tasks/work/family/test_adopting.py"
REPORTS: Final = "tests/unit/tasks/progress/test_reports.py"
SIZES: Final = "tests/unit/tasks/sizes/test_sizes.py"
SETTINGS: Final = "tests/unit/tasks/life/test_unsafe_settings.py"
FAULTS: Final = "tests/unit/tasks/stores/test_dynamodb_faults.py"
STORES: Final = "tests/contract/tasks/test_store.py::test_contract"
MUTATIONS: Final = "functions/delegation/idempotency/"
KEYS: Final = "tests/contract/mutations/"
CLIENT: Final = "functions/delegation/client/"
CALLER: Final = "tests/unit/client/"


RACES: Final = (
    Mutant(
        "a child is stored before it is noted",
        f"{TASKS}submit.py",
        "        if parent is None or not firsts:\n            return firsts, moved\n",
        "        if parent is None or not firsts:\n            return firsts, moved\n"
        "        self._service.submission.create_all(firsts)\n",
        (f"{ADOPTING}::test_a_child_is_noted_before_it_is_stored",),
    ),
    Mutant(
        "a child is adopted by an attempt that does not hold the parent",
        f"{TASKS}life/transitions.py",
        "    held_by(task, attempt)\n    family = task.family",
        "    family = task.family",
        (f"{ADOPTING}::test_an_attempt_that_no_longer_holds_the_parent_adopts_nothing",),
    ),
    Mutant(
        "DynamoDB: a child is adopted whatever became of the parent's head",
        f"{TASKS}stores/dynamodb.py",
        'check = self._on_head("ConditionCheck", task, "current_version = :version", {":version": task.version})',
        'check = self._on_head("ConditionCheck", task, "current_version > :version", {":version": 0})',
        (f"{STORES}[adopt_of_a_former_version_is_refused_and_records_nothing-moto]",),
    ),
    Mutant(
        "memory: a child is adopted whatever became of the parent's head",
        f"{TASKS}stores/memory.py",
        "head = require_version(before, self._heads.get(before.task_id))",
        "head = self._heads[before.task_id]",
        (f"{ADOPTING}::test_an_attempt_that_loses_the_parent_while_it_writes_adopts_nothing",),
    ),
    Mutant(
        "row n+1 is written over",
        f"{TASKS}stores/dynamodb.py",
        'rows = [self._put(codec.row_item(row), "attribute_not_exists(task_id)") for row in change.rows]',
        'rows = [self._put(codec.row_item(row), "attribute_exists(task_id) OR attribute_not_exists(task_id)") '
        "for row in change.rows]",
        (f"{FAULTS}::test_a_row_is_never_written_over",),
    ),
    Mutant(
        "DynamoDB: a task is removed whatever its revision",
        f"{TASKS}stores/dynamodb.py",
        'head_action = self._on_head("ConditionCheck" if more else "Delete", task, _UNMOVED, unmoved)',
        'head_action = self._on_head("ConditionCheck" if more else "Delete", task, "current_version = :version", '
        '{":version": task.version})',
        (f"{STORES}[remove_of_a_task_that_was_touched_is_refused-moto]",),
    ),
    Mutant(
        "memory: a task is removed whatever its revision",
        f"{TASKS}stores/memory.py",
        "            require_unmoved(task, head)\n            self._disown",
        "            require_version(task, head)\n            self._disown",
        (f"{STORES}[remove_of_a_task_that_was_touched_is_refused-memory]",),
    ),
    Mutant(
        "persistence: a task is removed whatever its revision",
        "functions/delegation/tasks/stores/persistence.py",
        "            require_unmoved(task, head)\n            for key",
        "            require_version(task, head)\n            for key",
        (f"{STORES}[remove_of_a_task_that_was_touched_is_refused-kernel]",),
    ),
    Mutant(
        "a worker uses its hints after its clock was set back",
        f"{TASKS}work/worker.py",
        "not timedelta(0) <= now - self._queried_at < _FRESH",
        "now - self._queried_at >= _FRESH",
        ("tests/unit/tasks/work/test_claim.py::test_hints_of_a_later_time_are_forgotten",),
    ),
    Mutant(
        "a clock that went back shortens a lease",
        f"{TASKS}life/transitions.py",
        "lost = max(lease.lost_not_before, held.lost_not_before or lease.lost_not_before)",
        "lost = lease.lost_not_before",
        ("tests/unit/tasks/life/test_transitions.py",),
    ),
    Mutant(
        "a retry on request waits for the dispatch grace",
        f"{TASKS}work/service.py",
        "                grace=timedelta(0),\n",
        "                grace=writes.policies.dispatch.grace,\n",
        ("tests/unit/tasks/work/test_service.py::test_a_task_that_is_submitted_again_is_due_and_acquired_at_once",),
    ),
    Mutant(
        "a task that is submitted again is not to run at once",
        f"{TASKS}life/transitions.py",
        "        next_scheduled_run_ts=at or now,\n",
        "        next_scheduled_run_ts=(at or now) + timedelta(minutes=1),\n",
        ("tests/unit/tasks/work/test_service.py::test_a_task_that_is_submitted_again_is_due_and_acquired_at_once",),
    ),
    Mutant(
        "a task that a poller finds waits for the dispatch grace",
        f"{TASKS}work/submission.py",
        "                return task.evolve(due_at=now)\n",
        "                return task\n",
        ("tests/unit/tasks/work/test_service.py::test_a_task_that_is_submitted_again_is_due_and_acquired_at_once",),
    ),
    Mutant(
        "the heartbeat of a former attempt renews",
        f"{TASKS}life/transitions.py",
        "    held_by(task, attempt)\n    held = task.lease\n",
        "    held = task.lease\n",
        ("tests/unit/tasks/work/test_service.py::test_a_late_worker_cannot_change_a_reassigned_task",),
    ),
    Mutant(
        "the heartbeat of a former owner renews",
        "functions/delegation/orchestration/steps.py",
        "        if task.lease.owner != step.execution:\n            return self._hand_over_again(step, task)\n",
        "",
        ("tests/unit/orchestration/test_former_owner.py",),
    ),
    Mutant(
        "a former owner hands over again",
        f"{TASKS}work/writes.py",
        "            if task.lease.owner != owner:\n                return task\n",
        "",
        ("tests/unit/orchestration/test_former_owner.py",),
    ),
)
"""Safeguards against writes of others that tests did not hold."""

CHILDREN: Final = (
    Mutant(
        "an absent child is a success",
        f"{TASKS}work/reads.py",
        "        heads += [create(parent, child) for child in lost]\n",
        "        heads += [create(parent, child) for child in lost[:0]]\n",
        (f"{FAMILIES}::test_a_child_that_the_last_attempt_adopted_and_that_is_absent_is_created_again",),
    ),
    Mutant(
        "an absent child of any attempt is created again",
        f"{TASKS}work/reads.py",
        "if head is None and child.attempt == parent.result_attempt]",
        "if head is None]",
        (f"{FAMILIES}::test_a_child_that_only_an_earlier_attempt_adopted_and_that_is_absent_is_ignored",),
    ),
    Mutant(
        "a cancelled parent cancels children that others await",
        f"{TASKS}work/reads.py",
        "        open_ = [head for head in open_ if not _is_awaited_by_others(tasks, head, parent)]\n",
        "",
        (f"{FAMILIES}::test_cancelling_a_parent_leaves_a_child_that_another_parent_waits_for",),
    ),
    Mutant(
        "two cancelled parents leave their child to each other",
        f"{TASKS}work/reads.py",
        "other.task_id != parent.task_id and not other.cancel_requested for",
        "other.task_id != parent.task_id for",
        (f"{FAMILIES}::test_cancelling_both_parents_cancels_the_child",),
    ),
    Mutant(
        "a task may await itself",
        f"{TASKS}work/reads.py",
        "    if parent.task_id in child_ids:\n",
        "    if parent in child_ids:\n",
        (f"{ADOPTING}::test_a_task_does_not_adopt_itself",),
    ),
    Mutant(
        "a task may await its parent's parent",
        f"{TASKS}work/reads.py",
        "                reached.append(ancestor)\n",
        "",
        (f"{FAMILIES}::test_a_task_that_submits_an_ancestor_is_refused",),
    ),
    Mutant(
        "two tasks that adopted each other wait for ever",
        f"{TASKS}work/reads.py",
        "tuple(head for head in open_ if head not in circular), circular)",
        "tuple(open_), circular)",
        (f"{FAMILIES}::test_two_tasks_that_submit_each_other_at_the_same_moment_do_not_wait_for_ever",),
    ),
    Mutant(
        "a child is removed while a parent that did not create it awaits it",
        f"{TASKS}work/reads.py",
        "    for parent_id in sorted({*adopters, *([child.parent_id] if child.parent_id else [])}):\n",
        "    for parent_id in [child.parent_id] if child.parent_id else []:\n",
        (f"{FAMILIES}::test_a_child_is_kept_while_any_parent_awaits_it",),
    ),
    Mutant(
        "the next attempt does not find children without an identity",
        f"{TASKS}life/transitions.py",
        "        family=task.family.evolve(child_ordinal=None),\n    )\n",
        "    )\n",
        (f"{FAMILIES}::test_children_without_an_identity_run_once_when_their_failed_parent_is_retried_on_request",),
    ),
    Mutant(
        "the children without an identity of two runs are the same",
        f"{TASKS}life/transitions.py",
        "runs = (family.runs_before or 0) + 1 if is_new_run else family.runs_before",
        "runs = family.runs_before",
        (f"{FAMILIES}::test_the_records_of_the_children_of_former_runs_are_removed",),
    ),
    Mutant(
        "a parent awaits the children of its former submissions",
        f"{TASKS}work/reads.py",
        "self.store.children(parent.task_id) if child.attempt > since",
        "self.store.children(parent.task_id) if child.attempt > 0",
        (f"{FAMILIES}::test_a_retried_parent_does_not_await_what_it_did_not_adopt",),
    ),
    Mutant(
        "an older release's list of children is not read",
        f"{TASKS}work/reads.py",
        "        return (*listed, *(child",
        "        return (*listed[:0], *(child",
        (f"{FAMILIES}::test_an_older_release_listed_the_children_in_the_head",),
    ),
    Mutant(
        "children that a later attempt adopts meanwhile are disowned",
        f"{TASKS}stores/dynamodb.py",
        '"attribute_not_exists(attempt) OR attempt <= :attempt"',
        '"attribute_not_exists(attempt) OR attempt <= :attempt OR attempt > :attempt"',
        (f"{FAULTS}::test_a_child_that_is_adopted_again_meanwhile_is_not_disowned",),
    ),
    Mutant(
        "the head of a parent grows with each child",
        f"{TASKS}life/transitions.py",
        "        family = family.evolve(children=(*family.children, task.task_id))",
        "        pass\n    family = family.evolve(children=(*family.children, child.task_id))",
        (f"{FAMILIES}::test_adopting_a_thousand_children_is_linear",),
    ),
)

REPORTED: Final = (
    Mutant(
        "a report with a member of one's own is taken",
        f"{TASKS}work/attempt_context.py",
        '            raise bad_report(f"{name}: a report has no such member. Put the value into the map `details`")',
        "            pass",
        (f"{REPORTS}::test_a_report_that_cannot_be_stored_is_refused_at_the_first_call",),
    ),
    Mutant(
        "a report may hold what is no number in JSON",
        f"{TASKS}life/progress.py",
        "            if not math.isfinite(value):\n",
        "            if value is None:\n",
        (f"{REPORTS}::test_a_report_that_cannot_be_stored_is_refused_at_the_first_call",),
    ),
    Mutant(
        "a report may be as large as it likes",
        f"{TASKS}life/progress.py",
        "    if size > MOST_BYTES:\n",
        "    if size > 2**40:\n",
        (f"{REPORTS}::test_a_report_that_cannot_be_stored_is_refused_at_the_first_call",),
    ),
    Mutant(
        "a reported name hides a field of the task",
        f"{TASKS}stores/codec.py",
        'return {**_DEFAULT_DETAILS, **task.details, **own, "format": FORMAT}',
        'return {**_DEFAULT_DETAILS, **task.details, **own, **task.reported, "format": FORMAT}',
        (REPORTS,),
    ),
    Mutant(
        "a report that came too soon is lost with the outcome",
        f"{TASKS}work/behaviors.py",
        "self._succeed(task, run.unwritten)",
        "self._succeed(task)",
        (f"{REPORTS}::test_a_report_that_comes_too_soon_is_written_with_the_next_or_with_the_outcome",),
    ),
)

SIZED: Final = (
    Mutant(
        "a payload of any size is accepted",
        f"{TASKS}work/submission.py",
        "    if size > MOST_PAYLOAD:\n",
        "    if size > 2**40:\n",
        (f"{SIZES}::test_a_payload_that_would_not_fit_with_what_follows_is_refused_when_it_is_submitted",),
    ),
    Mutant(
        "a size is counted in characters",
        f"{TASKS}work/submission.py",
        "    size = len(payload.encode())\n",
        "    size = len(payload)\n",
        (f"{SIZES}::test_a_payload_that_would_not_fit_with_what_follows_is_refused_when_it_is_submitted",),
    ),
    Mutant(
        "a ValidationException may pass",
        "functions/polaris_common/dynamodb.py",
        '    "ValidationException": CallOutcome.INVALID,\n',
        '    "ValidationException": CallOutcome.NOT_APPLIED,\n',
        (f"{SIZES}::test_a_validation_exception_is_permanent_and_tried_once",),
    ),
    Mutant(
        "a transaction that is refused permanently may pass",
        "functions/polaris_common/dynamodb.py",
        '    "ValidationError": CallOutcome.INVALID,\n',
        '    "ValidationError": CallOutcome.NOT_APPLIED,\n',
        (f"{SIZES}::test_a_validation_exception_is_permanent_and_tried_once",),
    ),
    Mutant(
        "work whose write is refused permanently is done again",
        f"{TASKS}work/attempt_context.py",
        "        case AwaitedTaskFailed() | StoreRefused():\n"
        "            return AttemptEnding(failed(error, ErrorClass.PERMANENT))\n",
        "        case AwaitedTaskFailed() | StoreRefused():\n"
        "            return AttemptEnding(failed(error, ErrorClass.TRANSIENT))\n",
        (f"{SIZES}::test_work_whose_write_the_table_refuses_permanently_is_done_once",),
    ),
    Mutant(
        "a result that was changed in the bucket is returned",
        f"{TASKS}work/reads.py",
        "    if hashlib.sha256(data).hexdigest() not in task.result_location:\n",
        "    if not task.result_location:\n",
        (f"{SIZES}::test_a_result_that_was_changed_since_or_cannot_be_reached_is_not_returned",),
    ),
    Mutant(
        "the next run begins with the former run's result",
        f"{TASKS}life/transitions.py",
        "        result_location=None,\n        pending_result=None,\n",
        "        pending_result=None,\n",
        (f"{SIZES}::test_a_task_that_runs_again_has_another_result",),
    ),
)

SAFE_SETTINGS: Final = (
    Mutant(
        "any drift is accepted",
        f"{TASKS}life/policy.py",
        "    if lease.clock_drift > LONGEST_DRIFT:\n",
        "    if lease.clock_drift > timedelta(days=9):\n",
        (SETTINGS,),
    ),
    Mutant(
        "a retention of 90 days is accepted",
        f"{TASKS}life/policy.py",
        "_LEAST_RETENTION: Final = timedelta(days=91)",
        "_LEAST_RETENTION: Final = timedelta(days=90)",
        (SETTINGS,),
    ),
    Mutant(
        "a misspelt task type is accepted at synthesis",
        "infra/environment/functions.py",
        "    require_known_types(properties, TYPES.keys() | {*added_types})\n",
        "",
        (SETTINGS,),
    ),
    Mutant(
        "a process is silent about task types that it does not know",
        "functions/delegation/wiring/deployment.py",
        "    if unknown:\n",
        "    if not unknown:\n",
        (SETTINGS,),
    ),
)

AT_MOST_ONCE: Final = (
    Mutant(
        "a call whose key was left by another runs without verifying",
        f"{MUTATIONS}mutations.py",
        "_executed(mutation, attempt) if is_clear else _reconciled(mutation, attempt)",
        "_executed(mutation, attempt)",
        (f"{KEYS}test_faults.py", f"{KEYS}test_stateful.py"),
    ),
    Mutant(
        "a held key is taken over before its lease is over",
        f"{MUTATIONS}mutations.py",
        "KeyState.HELD if now < stored.lost_not_before:",
        "KeyState.HELD if False:",
        (f"{KEYS}test_service.py",),
    ),
    Mutant(
        "a record in progress is forgotten with its lease",
        f"{MUTATIONS}reservations.py",
        """        "expires_at": _expiry(lost, policy),
        "nothing_done": None,
""",
        """        "expires_at": _expiry(lost - policy.lifetime, policy),
        "nothing_done": None,
""",
        (f"{KEYS}test_faults.py", f"{KEYS}test_stateful.py"),
    ),
    Mutant(
        "a 5xx is stored",
        f"{MUTATIONS}answers.py",
        "return self.is_success or self.is_refusal",
        "return True",
        (f"{KEYS}test_service.py",),
    ),
    Mutant(
        "a call that lost its key answers nevertheless",
        f"{MUTATIONS}mutations.py",
        """        if stored.state is State.IN_PROGRESS:
            raise MutationInProgress from None
        return _replayed(mutation, stored)
""",
        """        return performed
""",
        (f"{KEYS}test_service.py", f"{KEYS}test_stateful.py"),
    ),
    Mutant(
        "a refusal that could not be stored is answered",
        f"{MUTATIONS}mutations.py",
        """            if not performed.answer.is_success:
                raise
""",
        """            pass
""",
        (f"{KEYS}test_faults.py", f"{KEYS}test_stateful.py"),
    ),
    Mutant(
        "an attempt never runs out of time",
        f"{MUTATIONS}mutations.py",
        "        if self._clock() >= self.deadline:\n            raise MutationInProgress\n",
        "        return\n",
        (f"{KEYS}test_faults.py", f"{KEYS}test_stateful.py"),
    ),
    Mutant(
        "credentials are stored",
        f"{MUTATIONS}reservations.py",
        "    kept = storable(answer)\n",
        "    kept = answer\n",
        (f"{KEYS}test_service.py",),
    ),
    Mutant(
        "DynamoDB: a former holder's write is accepted",
        f"{MUTATIONS}reservations.py",
        '_UNCHANGED: Final = "nonce = :before"',
        '_UNCHANGED: Final = "nonce <> :before OR nonce = :before"',
        (f"{KEYS}test_store.py",),
    ),
)

CALLING: Final = (
    Mutant(
        "the executor has a table purged for any caller",
        f"{CLIENT}executor.py",
        "        require_authorised(self.authorise, identifier)\n        key = key or new_key()\n",
        "        key = key or new_key()\n",
        (f"{CALLER}test_executor.py::test_a_caller_who_may_only_read_purges_nothing",),
    ),
    Mutant(
        "the local executor purges a table for any caller",
        f"{CLIENT}executor.py",
        "        require_authorised(self.authorise, identifier)\n        from delegation.client.local_purge",
        "        from delegation.client.local_purge",
        (f"{CALLER}test_local.py::test_a_caller_who_may_only_read_purges_nothing",),
    ),
    Mutant(
        "any answer of the host permits a purge",
        f"{CLIENT}executor.py",
        "if authorise(identifier) is not True:",
        "if not authorise(identifier):",
        (f"{CALLER}test_executor.py::test_a_caller_who_may_only_read_purges_nothing",),
    ),
    Mutant(
        "a request is repeated after the service may have forgotten its key",
        f"{CLIENT}conversations.py",
        "elapsed + timedelta(seconds=wait) >= window:",
        "elapsed >= window:",
        (f"{CALLER}test_waiting.py::test_no_repeat_begins_when_the_key_may_be_forgotten",),
    ),
    Mutant(
        "a failure that only an operator ends is repeated",
        f"{CLIENT}errors.py",
        "return PermanentFailure(answer) if answer.retryable is False else ServiceFailed(answer)",
        "return ServiceFailed(answer)",
        (f"{CALLER}test_waiting.py::test_what_the_service_says_to_be_final_is_never_repeated",),
    ),
    Mutant(
        "each attempt of a delegated purge has a key of its own",
        f"{CLIENT}purge_task.py",
        'f"{context.task.task_id}.{number}"',
        'f"{context.task.task_id}.{context.attempt}"',
        (f"{CALLER}test_delegated_purge.py::test_a_handoff_that_fails_is_tried_again_with_the_same_key",),
    ),
    Mutant(
        "a delegated purge forgets the service's task",
        f"{CLIENT}purge_task.py",
        "    context.save()\n",
        "",
        (f"{CALLER}test_delegated_purge.py",),
    ),
)

DROPPING: Final = (
    Mutant(
        "a protected table is purged",
        "functions/delegation/removal/purge/context.py",
        "    if protection is not None:\n",
        '    if protection is not None and options.gc_disabled == "refuse":\n',
        ("tests/unit/removal/purge/test_protected.py::test_no_setting_purges_a_protected_table",),
    ),
    Mutant(
        "a cascade drops its namespaces although a table was kept",
        "functions/delegation/cli/tombstones/cascade.py",
        "        if kept:\n",
        "        if kept < 0:\n",
        (
            "tests/unit/cli/tombstones/test_drop_namespace.py::test_a_refused_table_is_named_and_no_namespace_is_dropped",
        ),
    ),
    Mutant(
        "a cascade drops a table by its name alone",
        "functions/delegation/cli/tombstones/drop.py",
        "if self.table_uuid is not None:",
        "if self.table_uuid is None:",
        ("tests/unit/cli/tombstones/test_receipts.py::test_a_table_that_was_made_anew_meanwhile_is_not_dropped",),
    ),
    Mutant(
        "the gateway drops another table than the one with the uuid",
        "functions/delegation/gateway/drop/sequence.py",
        "if self._wanted_uuid not in {None, table.table_uuid}:",
        "if self._wanted_uuid == table.table_uuid:",
        ("tests/unit/gateway/drop/test_table_uuid.py::test_another_table_of_the_name_is_not_touched",),
    ),
    Mutant(
        "a cascade begins although a table is protected",
        "functions/delegation/cli/tombstones/drop_namespace.py",
        "    if refused:\n",
        "    if refused and not cascade:\n",
        ("tests/unit/cli/tombstones/test_drop_namespace.py::test_one_protected_table_keeps_all",),
    ),
    Mutant(
        "each request of a drop has a key of its own",
        "functions/delegation/cli/tombstones/drop.py",
        "headers = {KEY_HEADER: self.key,",
        'headers = {KEY_HEADER: f"{self.key}.{self.now()}",',
        (
            "tests/unit/cli/tombstones/test_drop.py::test_an_unclear_answer_is_followed_by_the_same_request_with_the_same_key",
        ),
    ),
    Mutant(
        "only the word true protects a table",
        "functions/delegation/removal/path_guard.py",
        'value.lower() != "false" and',
        'value.lower() == "true" and',
        ("tests/unit/removal/purge/test_protected.py::test_every_value_but_false_protects",),
    ),
)
"""Safeguards of drop with purge, and of tables that must not be purged."""

MUTANTS: Final = (
    *RACES, *CHILDREN, *REPORTED, *SIZED, *SAFE_SETTINGS, *AT_MOST_ONCE, *CALLING, *DROPPING, *RUNNING, *EXPIRING, *READ
)  # fmt: skip
