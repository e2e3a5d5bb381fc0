"""Every part of a scope counts."""

from delegation.idempotency.keys import Scope


def test_every_part_of_a_scope_counts() -> None:
    scope = Scope("spark", "POLARIS", "POST", "/v1/tasks", "k")
    others = {
        Scope("trino", "POLARIS", "POST", "/v1/tasks", "k"),
        Scope("spark", "OTHER", "POST", "/v1/tasks", "k"),
        Scope("spark", "POLARIS", "DELETE", "/v1/tasks", "k"),
        Scope("spark", "POLARIS", "POST", "/v1/tasks/x", "k"),
        Scope("spark", "POLARIS", "POST", "/v1/tasks", "l"),
    }
    assert len({scope.id, *(other.id for other in others)}) == 6
