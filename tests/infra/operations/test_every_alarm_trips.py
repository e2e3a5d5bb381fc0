"""Each alarm has a test that trips it from the code that it watches; this table names it, and is complete."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from infra.operations.alarms import ALARMS
from tests.infra.operations import test_trips as ours
from tests.infra.operations import test_trips_of_aws as of_aws
from tests.infra.operations import test_trips_of_drivers as of_drivers
from tests.infra.operations import test_trips_of_front as of_front
from tests.infra.operations import test_trips_of_options as of_options

FAILURES: Final = [alarm for _, _, alarm in of_drivers.FAILURES.values()]
TRIPS: Final[Mapping[str, Callable[..., None]]] = {
    **dict.fromkeys(FAILURES, of_drivers.test_work_that_fails_raises_its_alarm_once),
    "TombstonesStuck": of_drivers.test_a_tombstone_that_cannot_be_settled_raises_its_alarm,
    "PoliciesInvalid": of_drivers.test_a_policy_that_is_not_valid_raises_its_alarm,
    "UpkeepBehind": of_drivers.test_a_table_that_waits_for_its_upkeep_raises_its_alarm,
    "DeadLetters": of_aws.test_a_message_that_is_no_dispatch_ends_in_the_queue_that_the_alarm_watches,
    "DispatchQueueAge": of_aws.test_a_dispatch_that_no_dispatcher_takes_grows_old_in_the_queue_that_the_alarm_watches,
    "DispatchErrors": ours.test_a_dispatcher_without_its_state_machine_raises_its_alarm,
    "ExecutionsFailed": of_aws.test_a_step_that_fails_fails_its_execution_which_the_alarm_counts,
    "WorkerErrors": of_drivers.test_a_worker_without_its_table_raises_its_alarm,
    "ChangesUnreadable": of_drivers.test_a_waiting_change_that_does_not_decode_raises_its_alarm,
    "Throttled": ours.test_throttled_attempts_raise_their_alarm,
    "SweeperErrors": of_aws.test_a_sweeper_that_cannot_run_raises_its_alarm,
    "SweeperSilent": of_aws.test_a_sweeper_that_is_not_invoked_raises_its_alarm,
    "SweepErrors": ours.test_sweeps_that_fail_for_some_tasks_raise_their_alarm_after_three_periods,
    "ItemsSetAside": ours.test_an_item_that_fails_for_a_day_raises_its_alarm,
    "MaintenanceAge": ours.test_maintenance_that_does_not_end_raises_its_alarm,
    "Paused": ours.test_a_pause_raises_the_alarm_that_says_so,
    "ApiServerErrors": of_aws.test_answers_of_5xx_raise_the_alarm_of_the_api,
    "TargetsUnhealthy": of_front.test_a_target_whose_answer_the_health_check_refuses_raises_its_alarm,
    "FrontErrors": of_front.test_requests_that_no_target_takes_raise_the_alarm_of_the_front,
    "TlsFailures": of_front.test_clients_without_a_certificate_raise_the_alarm_of_handshakes,
    "ProbeFailed": of_front.test_a_front_that_does_not_answer_the_probe_raises_its_alarm,
    "CertificateExpires": ours.test_a_certificate_that_expires_soon_raises_its_alarm_and_is_measured_once_an_hour,
    "NotificationsDead": of_options.test_a_notification_that_is_given_up_raises_its_alarm,
    "NotificationsFailing": of_options.test_deliveries_that_fail_raise_their_alarm,
    "NotificationDeadLetters": (
        of_options.test_a_notifier_without_its_table_ends_in_the_dead_letters_that_the_alarm_watches
    ),
    "GatewayErrors": of_options.test_a_gateway_that_raises_raises_its_alarm,
    "KeysUnavailable": of_options.test_a_table_of_keys_that_does_not_answer_raises_its_alarm,
    "SecretRotation": of_options.test_a_rotation_that_fails_raises_its_alarm,
    **dict.fromkeys(ours.BACKLOGS, ours.test_the_sweeper_raises_the_alarm_of_what_it_finds),
}


def test_every_alarm_has_a_test_that_trips_it() -> None:
    assert sorted(TRIPS) == sorted(rule.name for rule in ALARMS)


@pytest.mark.parametrize("name", TRIPS)
def test_the_test_asks_this_alarm_whether_it_is_raised(name: str) -> None:
    source = inspect.getsource(TRIPS[name])
    marks: list[Any] = getattr(TRIPS[name], "pytestmark", [])
    parameters = [value for mark in marks for value in mark.args[1]]
    named = f'["{name}"]' in source or (name in parameters and "watched[name]" in source)
    assert named or (name in FAILURES and "watched[alarm]" in source)
    assert ".is_raised_by(" in source
