"""Each role is allowed exactly the calls that its code makes, as recorded from test runs, and what `unseen.py` lists.

`record.py` makes the recording; tests of handlers and of the local stack fail for a call that it does not have.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from delegation.orchestration.job_runs import run_policy
from infra.environment.functions import FUNCTIONS, STATE_MACHINE_DEFINITION, placeholder
from tests.infra.conftest import SynthesizedStack
from tests.infra.security.actions import needed
from tests.infra.security.policies import JOBS, STATE_MACHINE, Allowed, Role, Templates, allowed_by, doubled, roles_of
from tests.infra.security.recording import committed
from tests.infra.security.unseen import UNSEEN, unseen

_DEFINITION: Final = STATE_MACHINE_DEFINITION.read_text(encoding="utf-8")
_INVOKED: Final = [name for name in FUNCTIONS if f"${{{placeholder(name)}}}" in _DEFINITION]
CALLS: Final = frozenset(
    [needed(call) for call in committed()]
    + [Allowed(STATE_MACHINE, "lambda:InvokeFunction", f"function {name}") for name in _INVOKED]
)
"""What the recorded calls need, and those that the state machine's definition makes."""
EXPECTED: Final = sorted({*CALLS, *unseen()})


@pytest.fixture(scope="module")
def templates(everything: dict[str, SynthesizedStack]) -> Templates:
    return {stack.stack.stack_name: stack.document for stack in everything.values()}


@pytest.fixture(scope="module")
def roles(templates: Templates) -> list[Role]:
    return list(roles_of(templates))


@pytest.fixture(scope="module")
def allowed(roles: list[Role], templates: Templates) -> list[Allowed]:
    return [each for role in roles for each in allowed_by(role, templates)]


@pytest.mark.parametrize("call", EXPECTED, ids=str)
def test_the_role_is_allowed(call: Allowed, allowed: list[Allowed]) -> None:
    assert call in allowed, f"{call} is not allowed, and {'its code calls it' if call in CALLS else 'it is needed'}"


def test_no_role_is_allowed_more(allowed: list[Allowed]) -> None:
    more = sorted(map(str, set(allowed) - set(EXPECTED)))
    assert not more, "no recorded call needs this, and unseen.py does not list it"


def test_no_role_of_the_deployment_of_cdk_json_is_allowed_more(
    data: SynthesizedStack, network: SynthesizedStack, service: SynthesizedStack
) -> None:
    templates = {stack.stack.stack_name: stack.document for stack in (data, network, service)}
    found = {each for role in roles_of(templates) for each in allowed_by(role, templates)}
    assert sorted(map(str, found - set(EXPECTED))) == []


def test_nothing_is_allowed_twice(allowed: list[Allowed]) -> None:
    """A second statement would hide that the first one was removed."""
    assert doubled(allowed) == []


def test_the_list_names_each_action_once_and_none_that_a_call_shows() -> None:
    assert doubled(unseen()) == []
    assert sorted(map(str, CALLS.intersection(unseen()))) == []
    assert all(group.reason.endswith(".") for group in UNSEEN)


def without_each(role: Role) -> Iterator[tuple[str, Role]]:
    """Yield each action of the role's Allow statements, with the role as it would be without it."""
    for number, policy in enumerate(role.document["Properties"].get("Policies", [])):
        for place, statement in enumerate(policy["PolicyDocument"]["Statement"]):
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            for action in actions if statement["Effect"] == "Allow" else []:
                changed = copy.deepcopy(role.document)
                own = changed["Properties"]["Policies"][number]["PolicyDocument"]["Statement"][place]
                own["Action"] = [each for each in actions if each != action]
                yield action, Role(role.name, role.stack, changed)


def test_without_any_one_action_a_named_test_fails(roles: list[Role], templates: Templates) -> None:
    """Each action in turn is removed from the template, and what is then missing has a test of its name above."""
    removed = 0
    for role in roles:
        complete = set(allowed_by(role, templates))
        for action, poorer in without_each(role):
            missing = complete - set(allowed_by(poorer, templates))
            assert missing, f"{role.name} without one {action} is allowed the same"
            assert {each.action for each in missing} == {action}
            assert missing <= set(EXPECTED), f"no test fails without {sorted(map(str, missing))}"
            removed += 1
    assert removed > len(roles)


def test_every_role_has_a_recorded_call_or_is_listed(roles: list[Role]) -> None:
    named = {each.role for each in EXPECTED}
    managed = {role.name for role in roles if "Policies" not in role.document["Properties"]}
    assert {role.name for role in roles} - managed <= named
    assert named <= {role.name for role in roles}


def test_the_policy_of_one_run_allows_what_jobs_call() -> None:
    """`executionIamPolicy` narrows the job role, so what the code calls must be in both."""
    policy = json.loads(run_policy("arn:aws:iam::1:role/x", "plans", ["folder"]))
    anywhere, own_folders = policy["Statement"]
    called = {call.action for call in CALLS if call.role == JOBS}
    assert called - set(anywhere["Action"]) == {own_folders["Action"]} == {"s3:PutObject"}


def test_the_policy_of_one_run_allows_no_action_that_the_role_has_not(allowed: list[Allowed]) -> None:
    policy: Mapping[str, Any] = json.loads(run_policy("arn:aws:iam::1:role/x", "plans", ["folder"]))
    assert set(policy["Statement"][0]["Action"]) <= {each.action for each in allowed if each.role == JOBS}
