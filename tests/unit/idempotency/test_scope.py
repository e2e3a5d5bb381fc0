"""Resource paths that are equal have equal text, others do not."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.idempotency.scope import Scope, normalized_path

_CHARACTERS = st.characters(exclude_categories=["Cs"])
NAMES = st.text(_CHARACTERS, min_size=1, max_size=8).filter(lambda name: name not in {".", ".."})


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/v1/tables/t", "/v1/tables/t"),
        ("/v1//tables/t/", "/v1/tables/t"),
        ("/v1/tables/%74?purgeRequested=true", "/v1/tables/t"),
        ("/v1/./views/../tables/t", "/v1/tables/t"),
        ("/v1/%2e%2E/tables", "/tables"),
        ("/v1/namespaces/a%1fb", "/v1/namespaces/a%1Fb"),
        ("/v1/namespaces/a%2fb", "/v1/namespaces/a%2Fb"),
        ("/v1/namespaces/a%zz", "/v1/namespaces/a%zz"),
        ("..", "/"),
        ("", "/"),
    ],
)
def test_a_path_is_normalized_as_rfc_3986_says(path: str, normal: str) -> None:
    assert normalized_path(path) == normal
    assert normalized_path(normal) == normal


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=4))
def test_paths_of_other_names_stay_apart_however_they_are_escaped(first: list[str], second: list[str]) -> None:
    paths = ["/" + "/".join(quote(name, safe="") for name in names) for names in (first, second)]
    assert (normalized_path(paths[0]) == normalized_path(paths[1])) == (first == second)


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
