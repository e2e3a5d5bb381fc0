"""Mutants of notifications, admission, orchestration, what is stored of a task, and parents of many children."""

from typing import Final

from tests.mutants.mutant import Mutant

TASKS: Final = "functions/delegation/tasks/"
NOTIFICATIONS: Final = "functions/delegation/notifications/"
ORCHESTRATION: Final = "functions/delegation/orchestration/"
DELIVERY: Final = "tests/unit/notifications/test_delivery.py"
RECEIVERS: Final = "tests/unit/tasks/life/notifications/test_receivers.py"
ADDRESSES: Final = "tests/unit/notifications/test_addresses.py"
OWED: Final = "tests/contract/tasks/test_notifications.py::test_contract"
RECENT: Final = "tests/unit/orchestration/test_recent_admissions.py"
ADMISSION: Final = "tests/unit/orchestration/test_admission.py"
WAITING: Final = "tests/unit/orchestration/test_waiting_jobs.py"
LEASES: Final = "tests/unit/orchestration/test_job_leases.py"
EXCUSED: Final = "tests/unit/tasks/life/test_excused_losses.py"
SCHEDULE: Final = "tests/unit/tasks/authoring/test_schedule.py"
MAINTENANCE: Final = "tests/unit/tasks/work/test_maintenance.py"
MANY: Final = "tests/unit/tasks/authoring/test_many_children.py"

NOTIFYING: Final = (
    Mutant(
        "notifier: a refused write begins a delivery",
        f"{NOTIFICATIONS}delivery.py",
        "        if not self.store.revise_notification(owed, begun):\n",
        "        if not self.store.revise_notification(owed, begun) and not begun:\n",
        (f"{DELIVERY}::test_a_delivery_that_another_process_begins_first_is_not_begun",),
    ),
    Mutant(
        "notifier: a message of a former delivery begins another",
        f"{NOTIFICATIONS}delivery.py",
        "owed.attempts != message.n - 1",
        "owed.attempts < message.n - 1",
        (f"{DELIVERY}::test_only_the_message_of_the_next_delivery_begins_one",),
    ),
    Mutant(
        "notifier: a message of a later delivery begins one",
        f"{NOTIFICATIONS}delivery.py",
        "owed.attempts != message.n - 1",
        "owed.attempts > message.n - 1",
        (f"{DELIVERY}::test_only_the_message_of_the_next_delivery_begins_one",),
    ),
    Mutant(
        "notifier: a receiver that is set apart is called with the others",
        f"{NOTIFICATIONS}delivery.py",
        "        if receiver is not None and receiver.apart:\n",
        "        if receiver is not None and receiver.apart and message.apart:\n",
        (f"{DELIVERY}::test_a_message_to_a_receiver_that_is_set_apart_begins_no_delivery",),
    ),
    Mutant(
        "notifier: any number of deliveries try a failing receiver",
        f"{NOTIFICATIONS}delivery.py",
        "if free is None or (free is not receiver and not self.store.revise_receiver(receiver, free)):",
        "if free is None:",
        (f"{DELIVERY}::test_one_delivery_at_a_time_tries_a_failing_receiver",),
    ),
    Mutant(
        "sweeper: a queue of notifications is filled without end",
        f"{NOTIFICATIONS}delivery.py",
        "        if not (store.revise_notification(owed, owing.sent_again(owed, now)) and left[pool] > 0):\n",
        "        if not store.revise_notification(owed, owing.sent_again(owed, now)):\n",
        (f"{DELIVERY}::test_the_sweeper_fills_no_queue_beyond_its_room_and_leaves_nothing_behind",),
    ),
    Mutant(
        "notifications: events wait behind callbacks",
        f"{NOTIFICATIONS}queue.py",
        "return Pool.CALLBACKS if is_callback(owed.channel) else Pool.EVENTS",
        "return Pool.CALLBACKS",
        (f"{DELIVERY}::test_each_kind_of_delivery_has_a_queue_of_its_own",),
    ),
    Mutant(
        "notifications: what a failing receiver is owed never ends",
        f"{TASKS}life/notifications.py",
        "    return now - owed.owed_since >= policy.lasts\n",
        "    return now - owed.owed_since >= 1_000 * policy.lasts\n",
        (f"{DELIVERY}::test_what_a_failing_receiver_is_owed_for_longer_than_all_deliveries_last_is_a_dead_letter",),
    ),
    Mutant(
        "receivers: one that blocks is called again at once",
        f"{TASKS}life/notifications.py",
        "STRIKES if took > BLOCKING else",
        "STRIKES if took > 100 * BLOCKING else",
        (f"{RECEIVERS}::test_one_delivery_that_blocks_sets_its_receiver_apart_accepted_or_not",),
    ),
    Mutant(
        "receivers: a relapse is forgotten",
        f"{TASKS}life/notifications.py",
        "PROOF << min(receiver.times_apart - 1, _MOST_DOUBLINGS)",
        "PROOF",
        (f"{RECEIVERS}::test_a_receiver_is_back_after_quick_acceptances_in_a_row_and_twice_as_many_after_a_relapse",),
    ),
    Mutant(
        "receivers: a failing one is tried without a pause",
        f"{TASKS}life/notifications.py",
        "    if now < receiver.not_before:\n",
        "    if now < receiver.changed_ts:\n",
        (f"{RECEIVERS}::test_a_failing_receiver_is_tried_by_one_delivery_after_pauses_that_double",),
    ),
    Mutant(
        "addresses: ISATAP leads to a private address",
        f"{NOTIFICATIONS}https.py",
        "if _is_in(address, _LAST_32_BITS) or (number >> 32) & 0xFFFF_FFFF in _ISATAP:",
        "if _is_in(address, _LAST_32_BITS):",
        (f"{ADDRESSES}::test_an_ipv6_address_with_a_private_ipv4_address_in_it_is_never_called",),
    ),
    Mutant(
        "addresses: a setting allows this machine",
        f"{NOTIFICATIONS}https.py",
        "or address.is_link_local or address.is_loopback\n",
        "or address.is_link_local\n",
        (f"{ADDRESSES}::test_this_machine_is_called_by_the_local_stack_only",),
    ),
    Mutant(
        "DynamoDB: what is parked is found with the others",
        f"{TASKS}stores/notifications.py",
        "_parking(owed.state, owed.channel) if owed.parked else",
        "_parking(owed.state, owed.channel) if owed.is_dead else",
        (f"{OWED}[what_is_parked_is_found_by_its_channel_only-moto]",),
    ),
    Mutant(
        "DynamoDB: the time of a resend is lost",
        f"{TASKS}stores/notifications.py",
        'since_ts=stored_time(item["since_ts"]) if "since_ts" in item else None,',
        "since_ts=None,",
        (f"{OWED}[a_dead_letter_is_found_apart_and_revived-moto]",),
    ),
    Mutant(
        "DynamoDB: a receiver's record is written over",
        "functions/delegation/stored_items.py",
        'return "revision = :before", {":before": before}',
        'return "revision >= :before", {":before": before}',
        (f"{OWED}[a_receiver_is_stored_under_the_revision_that_was_read-moto]",),
    ),
)

ADMITTING: Final = (
    Mutant(
        "admission: an entry counts for long although the index showed it",
        f"{TASKS}admission.py",
        "age < (_SETTLED if entry.task_id in known else _COUNTED)",
        "age < _COUNTED",
        (f"{RECENT}::test_an_admission_counts_until_the_index_has_settled",),
    ),
    Mutant(
        "admission: an entry is dropped as soon as the index showed it",
        f"{TASKS}admission.py",
        "age < (_SETTLED if entry.task_id in known else _COUNTED)",
        "entry.task_id not in known and age < _COUNTED",
        (f"{RECENT}::test_an_admission_counts_until_the_index_has_settled",),
    ),
    Mutant(
        "admission: an ended task keeps its place",
        f"{TASKS}admission.py",
        "return entry.task_id not in ended and age",
        "return age",
        (f"{RECENT}::test_an_admission_that_has_ended_counts_no_more",),
    ),
    Mutant(
        "admission: a task whose dispatch starts nothing waits no longer each time",
        f"{TASKS}life/decisions.py",
        "    at = max(policy.next_check(last, now) - policy.grace, now)\n",
        "    at = now\n",
        (f"{RECENT}::test_dispatches_without_an_attempt_are_ever_farther_apart",),
    ),
    Mutant(
        "admission: a cap is exceeded by one",
        f"{TASKS}life/lanes.py",
        "all(self._counts[key] < cap for",
        "all(self._counts[key] <= cap for",
        (
            "tests/unit/tasks/life/test_admission.py::test_no_cap_is_exceeded_and_no_room_is_left_that_a_waiting_task_may_use",
            "tests/unit/tasks/life/test_admission.py::test_no_cap_is_exceeded_and_no_room_is_left_that_a_waiting_task_may_use",
        ),
    ),
    Mutant(
        "admission: a queued task is acquired",
        f"{TASKS}life/decisions.py",
        "now < task.next_scheduled_run_ts or task.is_queued:\n        return task\n    if task.cancel_requested",
        "now < task.next_scheduled_run_ts:\n        return task\n    if task.cancel_requested",
        (f"{ADMISSION}::test_a_queued_task_is_neither_dispatched_nor_acquired_nor_failed_however_long_it_waits",),
    ),
)

DRIVING: Final = (
    Mutant(
        "heartbeat: a job waits beyond its task's deadline",
        f"{ORCHESTRATION}steps.py",
        "if run.is_waiting and (task.cancel_requested or past_deadline(task, now)):",
        "if run.is_waiting and task.cancel_requested:",
        (f"{WAITING}::test_a_task_past_its_deadline_does_not_wait_for_its_job_to_start",),
    ),
    Mutant(
        "heartbeat: a job that runs is ended by the deadline",
        f"{ORCHESTRATION}steps.py",
        "if run.is_waiting and (task.cancel_requested or past_deadline(task, now)):",
        "if task.cancel_requested or past_deadline(task, now):",
        (f"{WAITING}::test_a_job_that_runs_is_not_ended_by_the_deadline",),
    ),
    Mutant(
        "heartbeat: a start in the future keeps a lease for long",
        f"{ORCHESTRATION}steps.py",
        "return min(max(signs), now) if signs else None",
        "return max(signs) if signs else None",
        (f"{LEASES}::test_a_start_time_in_the_future_counts_as_now",),
    ),
    Mutant(
        "make due: an execution ends an attempt of another",
        f"{ORCHESTRATION}steps.py",
        "        if task.is_held and task.lease.owner == step.execution:\n            if failure.may_still_work:\n",
        "        if task.is_held:\n            if failure.may_still_work:\n",
        (f"{WAITING}::test_a_former_execution_whose_state_failed_leaves_the_job_of_the_next_one",),
    ),
    Mutant(
        "excused loss: of a later attempt",
        f"{TASKS}life/outcomes.py",
        "if task.is_held or task.is_terminal or task.attempt_count != attempt:",
        "if task.is_held or task.is_terminal:",
        (EXCUSED,),
    ),
    Mutant(
        "excused loss: of an attempt whose work had an engine",
        f"{TASKS}life/outcomes.py",
        "    if task.error_code != t.LOST or task.engine is not None:\n",
        "    if task.error_code != t.LOST:\n",
        (EXCUSED,),
    ),
    Mutant(
        "excused loss: again and again",
        f"{TASKS}life/outcomes.py",
        "    if task.error_code != t.LOST or task.engine is not None:\n",
        "    if task.engine is not None:\n",
        (EXCUSED,),
    ),
)

STORED: Final = (
    Mutant(
        "codec: each row has the errors of all attempts",
        f"{TASKS}life/model.py",
        '**({} if self.is_terminal else {"result_extended": None})',
        "**{}",
        ("tests/unit/tasks/stores/test_row_sizes.py::test_a_thousand_retries_store_their_errors_once",),
    ),
    Mutant(
        "codec: an end loses its result",
        f"{TASKS}life/model.py",
        '**({} if self.is_terminal else {"result_extended": None})',
        "result_extended=None",
        ("tests/unit/tasks/stores/test_row_sizes.py::test_each_row_says_its_own_error_and_the_end_all_of_them",),
    ),
    Mutant(
        "codec: the place in an index is a detail of the task",
        f"{TASKS}stores/codec.py",
        '    "due_bucket",\n    "admission_bucket",\n',
        '    "admission_bucket",\n',
        ("tests/unit/tasks/stores/test_codec.py::test_heads_and_rows_are_read_as_they_were_written",),
    ),
    Mutant(
        "codec: a record of another format is read",
        f"{TASKS}stores/codec.py",
        '    if item.get("format") != FORMAT:\n',
        '    if item.get("format") is None:\n',
        ("tests/unit/tasks/stores/test_codec.py",),
    ),
)

GATHERING: Final = (
    Mutant(
        "family: the last child wakes nobody",
        f"{TASKS}work/writes.py",
        "            if ended and written.after.parent_id is not None:\n",
        "            if ended and written.after.parent_id is None:\n",
        (f"{MANY}::test_the_last_child_wakes_its_parent",),
    ),
    Mutant(
        "family: a child that ends before its parent waits wakes nobody",
        f"{TASKS}work/writes.py",
        "            if child is None or child.is_terminal:\n",
        "            if child is None:\n",
        (f"{MANY}::test_a_child_that_ends_while_its_parent_goes_to_wait_for_it_wakes_it",),
    ),
    Mutant(
        "family: a batch records its first child only",
        f"{TASKS}stores/dynamodb.py",
        "for child in change.children for item in both]",
        "for child in change.children[:1] for item in both]",
        ("tests/contract/tasks/test_store.py::test_contract[adopt_records_several_children_or_none-moto]",),
    ),
    Mutant(
        "submit: each start adds a recurring task",
        f"{TASKS}submit.py",
        "        if when.recurrence and key is None and behavior.identify is None:\n",
        "        if when.recurrence and key is None and behavior.identify is not None:\n",
        (f"{SCHEDULE}::test_a_recurring_submission_without_a_key_is_known_by_its_parameters",),
    ),
    Mutant(
        "maintenance: a cancelled one never comes back",
        f"{TASKS}life/declared.py",
        "    return head.is_terminal and every is not None and now",
        "    return head.is_terminal and every is None and now",
        (f"{MAINTENANCE}::test_a_cancelled_maintenance_task_comes_back_by_itself_an_interval_later",),
    ),
)

RUNNING: Final = (*NOTIFYING, *ADMITTING, *DRIVING, *STORED, *GATHERING)
