"""A part of the matrix of faults, with the same checks on every catalog; `make gateway-matrix` runs all of it."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from delegation.gateway.drop.tombstones import Tombstone
from tests.contract.polaris.world import real, stand_in
from tests.effort import THOROUGH
from tests.unit.gateway.drop.deployment import Deployment
from tests.unit.gateway.drop.matrix.cells import Case, Fault, Keyed, Matrix, Recreated, cases, violations
from tests.unit.gateway.drop.matrix.served import served
from tests.unit.gateway.drop.world import DropWorld

_PARTS = 13 if THOROUGH else 37
"""A number without a common divisor with that of the faults, so that every part has all faults and all calls."""
_PARTS_OF_A_SERVER = 199

Worlds = Callable[[], Deployment]


@pytest.fixture(scope="module", params=["stand-in", "real"])
def server(request: pytest.FixtureRequest) -> Iterator[Worlds]:
    """What makes a deployment before a server, as in tests/contract/polaris."""
    if request.param == "stand-in":
        with stand_in() as polaris, served(polaris) as made:
            yield made.world
        return
    found = real()
    if found is None:
        pytest.skip("needs a Polaris: set POLARIS_URL, POLARIS_CREDENTIAL and POLARIS_WAREHOUSE")
    with served(found) as made:
        yield made.world


@pytest.mark.parametrize("keyed", Keyed)
def test_every_fault_at_every_call_ends_with_the_right_table_dropped_or_none(keyed):
    part = list(cases(1, _PARTS, [keyed]))
    assert len(part) > 10
    assert {case: found for case in part if (found := violations(case))} == {}


def test_a_server_is_checked_as_the_catalog_in_this_process_is(server):
    part = list(cases(1, _PARTS_OF_A_SERVER, Keyed if THOROUGH else [Keyed.KEY], world=server))
    assert len(part) > 2
    assert {case: found for case in part if (found := violations(case, server))} == {}


def test_a_drop_makes_the_same_calls_on_every_catalog(server):
    for keyed in Keyed:
        case = Case(Fault.KILLED_BEFORE, 0, keyed, Recreated.SWAPPED)
        made = [[name.split(" ")[0] for name in _calls(case, world)] for world in (DropWorld, server)]
        assert made[0] == made[1]


def test_the_checks_of_a_server_see_a_table_that_is_not_renamed_back(server, monkeypatch):
    monkeypatch.setattr(Tombstone, "is_of_another_table", property(lambda _record: False))
    with contextlib.closing(server()) as here:
        wrong = Matrix(Case(Fault.KILLED_BEFORE, 0, Keyed.NO, Recreated.SWAPPED), here).run()
    assert {"another user's table lost its name or files", "a table is hidden"} <= set(wrong)


def _calls(case: Case, world: Worlds) -> list[str]:
    with contextlib.closing(world()) as here:
        return Matrix(case, here).calls()
