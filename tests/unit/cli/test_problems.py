import pytest

from delegation.cli.problems import _OF_CODES, _OTHERWISE, next_step
from delegation.client import errors as client
from delegation.client.errors import HttpError
from delegation.errors import DelegationError
from delegation.polaris import errors as polaris
from delegation.polaris.answers import POLICY_CODES
from delegation.tasks import errors as tasks
from tests.kit.errors import made_with_code


def below(kind):
    for inner in kind.__subclasses__():
        yield inner
        yield from below(inner)


def bare(kind):
    """An instance without its constructor: only its class counts here."""
    return kind.__new__(kind)


FORESEEN = [
    *(kind for kind in below(client.DelegationClientError)),
    *(kind for kind in below(polaris.PolarisError)),
    tasks.TaskNotFound,
    tasks.MalformedRecord,
    tasks.StoreUnavailable,
]


@pytest.mark.parametrize("kind", FORESEEN, ids=lambda kind: kind.__name__)
def test_each_foreseen_error_has_a_specific_next_step(kind):
    assert next_step(bare(kind)) != _OTHERWISE


def test_each_code_with_a_step_of_its_own_is_raised_and_has_that_step():
    raised = {*(made.code for made in made_with_code()), *POLICY_CODES.values()}
    assert _OF_CODES.keys() - raised == set()
    assert {code: next_step(DelegationError("no", code=code)) for code in _OF_CODES} == _OF_CODES


def test_next_step_names_the_task_of_the_error():
    answer = HttpError(500, "LOST", "lost", delegation_task_id="t-1", status="FAILED_TERMINAL")
    assert "delegation tasks history t-1`" in next_step(client.error_for(answer))


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
