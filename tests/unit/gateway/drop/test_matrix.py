"""A part of the matrix of faults; `make gateway-matrix` runs all of it."""

import pytest

from tests.unit.gateway.drop.matrix import Keyed, cases, violations

_PARTS = 13
"""A number without a common divisor with that of the faults, so that every part has all faults and all calls."""


@pytest.mark.parametrize("keyed", Keyed)
def test_every_fault_at_every_call_ends_with_the_right_table_dropped_or_none(keyed):
    part = list(cases(1, _PARTS, [keyed]))
    assert len(part) > 20
    assert {case: found for case in part if (found := violations(case))} == {}
