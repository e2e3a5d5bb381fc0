import importlib

import pytest

from delegation.cli.errors import task_did_not_succeed
from delegation.cli.output import next_step
from delegation.client import errors as client
from delegation.client.errors import HttpError
from delegation.edge.codes import by_code, codes_of_the_command
from delegation.polaris import answers as polaris
from delegation.polaris.answers import POLICY_CODES
from delegation.tasks import errors as tasks
from polaris_common.errors import DelegationError
from tests.kit.errors import made_with_code


def below(kind):
    for inner in kind.__subclasses__():
        yield inner
        yield from below(inner)


def bare(kind):
    """An instance without its constructor: only its class counts here, or the one code that its answers have."""
    error = kind.__new__(kind)
    error.error_code = ANSWERED.get(kind)
    return error


ANSWERED = {
    client.IdempotencyKeyConflict: "idempotency_key_conflict",
    client.RequestStillRunning: client.REQUEST_IN_PROGRESS,
}
OTHERWISE = by_code()["INTERNAL_ERROR"].command


FORESEEN = [
    *(kind for kind in below(client.DelegationClientError)),
    *(kind for kind in below(polaris.PolarisError)),
    tasks.TaskNotFound,
    tasks.MalformedRecord,
    tasks.StoreUnavailable,
]


@pytest.mark.parametrize("kind", FORESEEN, ids=lambda kind: kind.__name__)
def test_each_foreseen_error_has_a_specific_next_step(kind):
    assert next_step(bare(kind)) not in {None, OTHERWISE}


def test_each_code_that_only_the_command_has_is_raised():
    for module in ("delegation.cli.interruption", "polaris_persistence.errors"):
        importlib.import_module(module)
    raised = {*(made.code for made in made_with_code()), *(kind.code for kind in below(DelegationError))}
    assert codes_of_the_command().keys() - raised == set()
    assert codes_of_the_command().keys() & by_code().keys() == set()


@pytest.mark.parametrize("code", [*codes_of_the_command(), *POLICY_CODES.values(), "INVALID_PROPERTY"])
def test_advice_at_a_terminal_is_that_of_the_table(code):
    known = by_code().get(code) or codes_of_the_command()[code]
    assert next_step(DelegationError("no", code=code)) == (known.command or known.action)


def test_what_passes_by_itself_is_repeated_at_a_terminal():
    assert "Retry-After" in by_code()["STORAGE_UNAVAILABLE"].action
    assert next_step(DelegationError("no", code="STORAGE_UNAVAILABLE")) == OTHERWISE


def test_a_refusal_has_the_advice_of_the_code_that_the_service_answered_with():
    refused = client.error_for(HttpError(403, "REALM_MISMATCH", "another realm"))
    assert next_step(refused) == by_code()["REALM_MISMATCH"].action
    failed = client.error_for(HttpError(500, "LOST", "lost", status="FAILED_TERMINAL"))
    assert next_step(failed) == by_code()["TASK_FAILED"].command
    assert next_step(client.error_for(HttpError(403, "HTTP_403", "no"))) == next_step(bare(client.NotPermitted))


def test_a_key_of_another_body_has_its_advice_whatever_code_the_answer_has():
    refused = client.error_for(HttpError(422, "HTTP_422", "no"))
    assert next_step(refused, {"--key"}) == by_code()["idempotency_key_conflict"].command


def test_a_refusal_about_an_option_that_the_command_lacks_has_the_advice_to_a_caller():
    """The same command would be refused again."""
    refused = client.error_for(HttpError(409, "PLAN_OF_ANOTHER_TABLE", "another table"))
    assert "--plan" in next_step(refused, {"--plan"})
    assert next_step(refused, {"--json"}) == by_code()["PLAN_OF_ANOTHER_TABLE"].action


def test_next_step_names_the_task_of_the_error():
    answer = HttpError(500, "LOST", "lost", delegation_task_id="t-1", status="FAILED_TERMINAL")
    assert "delegation tasks retry t-1`" in next_step(client.error_for(answer))


def test_next_step_after_a_table_that_is_not_there_is_about_its_name_and_not_about_tasks():
    missing = client.error_for(HttpError(404, "NO_SUCH_TABLE", "Table does not exist: shop.orders"))
    assert next_step(missing).startswith("Check the name CATALOG.NAMESPACE.TABLE")
    assert "tasks list" in next_step(client.error_for(HttpError(404, "TASK_NOT_FOUND", "no task")))


def test_next_step_names_no_option_that_the_command_lacks():
    lost = bare(client.AnswerLost)
    failed = client.ServiceFailed(HttpError(503, "BUSY", "busy"))
    assert "--key" in next_step(failed, {"--key", "--wait"})
    assert next_step(failed, {"--json"}) == "Try again in a moment."
    assert next_step(lost, {"--json"}) == "Run the command again."


def test_what_another_command_is_called_with_stays():
    step = next_step(bare(client.NotFound), frozenset())
    assert "delegation tasks list" in step


@pytest.mark.parametrize("code", ["LEASE_LOST", "STORAGE_UNAVAILABLE", "LOST", "JOB_FAILED", "CORRUPT_MANIFEST", None])
def test_a_failed_task_is_not_said_to_be_retried(code: str | None) -> None:
    """No attempt is left: the person at the terminal retries the task."""
    advice = task_did_not_succeed("t1", code, None).next_step
    assert not advice.startswith(("Wait for the retry", "Nothing", "."))
    assert "delegation tasks retry t1" in advice
