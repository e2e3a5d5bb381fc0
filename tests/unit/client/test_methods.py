"""Both clients have a method for each operation of the table, with its description."""

import inspect

import pytest

from delegation.client import AsyncDelegationClient, DelegationClient
from delegation.client.client import Answered, IteratedMethod, Methods
from delegation.client.operations import Operations

OPERATIONS = {
    name: operation
    for name, operation in inspect.getmembers(Operations, inspect.isfunction)
    if not name.startswith("_") and name != "with_pauses"
}


def test_every_operation_is_a_method() -> None:
    methods = {name for name, one in vars(Methods).items() if isinstance(one, Answered | IteratedMethod)}
    assert methods == OPERATIONS.keys()


@pytest.mark.parametrize("client", [DelegationClient, AsyncDelegationClient])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_method_is_described_as_its_operation(client: type, name: str) -> None:
    assert getattr(client, name) is OPERATIONS[name]
    assert inspect.getdoc(getattr(client, name))
