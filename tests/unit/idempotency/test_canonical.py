"""The payload hash: RFC 8785's test vectors, large integers, credentials left out."""

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.idempotency.keys import NotCanonicalizable, Scope, canonical_json, exact_integers, payload_hash

# RFC 8785, Appendix B: IEEE 754 bits and their ECMAScript form.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers_of_rfc_8785_appendix_b(bits: str, text: str) -> None:
    value = struct.unpack(">d", bytes.fromhex(bits))[0]
    assert canonical_json(value).decode() == text


@pytest.mark.parametrize("member", [{"n": math.nan}, {"n": math.inf}, {"n": -math.inf}, {"\ud800": 1}])
def test_nan_infinity_and_text_that_is_not_unicode_have_no_canonical_form(member: dict[str, float]) -> None:
    with pytest.raises(NotCanonicalizable):
        canonical_json(member)


def test_the_example_of_section_3_2_2() -> None:
    source = (
        '{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],'
        '"string": "\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/",'
        '"literals": [null, true, false]}'
    )
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical_json(json.loads(source)).decode() == expected


def test_members_sort_by_utf_16_code_units_as_in_section_3_2_3() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    ordered = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    written = canonical_json(dict.fromkeys(keys, 0)).decode()
    assert list(json.loads(written)) == ordered


@given(st.integers(min_value=-(2**70), max_value=2**70))
def test_integers_beyond_2_53_are_distinguished(value: int) -> None:
    other = value + 1
    assert canonical_json([value]) != canonical_json([other])
    if abs(value) > 2**53 - 1:
        assert exact_integers([True, 1, value]) == [True, 1, {"$int": str(value)}]
        assert exact_integers(value) == {"$int": str(value)}
        assert exact_integers(value, rule=1) == str(value)


def test_credentials_are_left_out_and_nothing_else_is() -> None:
    body = {
        "common_payload": {"request_timestamp_utc": "2025-06-11T16:21:00Z"},
        "operation_parameters": {"config": {"a": "1"}, "storage-credentials": [1], "properties": {"config": "kept"}},
    }
    same = {**body, "operation_parameters": {"properties": {"config": "kept"}}}
    assert payload_hash(body) == payload_hash(same)
    for other in (
        {**body, "common_payload": {"request_timestamp_utc": "2025-06-11T16:21:01Z"}},
        {**same, "operation_parameters": {"properties": {"config": "other"}}},
        {**same, "config": {}},
    ):
        assert payload_hash(other) != payload_hash(body)


def test_the_hash_is_lower_case_hex_sha_256_of_the_canonical_form() -> None:
    """`printf '{"a":[],"b":1}' | sha256sum`"""
    assert payload_hash({"b": 1, "a": []}) == "1c8f8816506a8ccbc55140d8a7bb70214a8942c7030fc0fc2914cec675cd1c15"


@given(st.one_of(st.integers(min_value=2**53), st.integers(max_value=-(2**53))))
def test_a_big_integer_and_its_digits_as_a_string_hash_differently(value: int) -> None:
    assert payload_hash({"snapshot-id": value}) != payload_hash({"snapshot-id": str(value)})


@pytest.mark.parametrize("value", ["9007199254740992", "5", 5, None])
def test_an_object_that_looks_like_a_written_big_integer_has_no_canonical_form(value: object) -> None:
    with pytest.raises(NotCanonicalizable, match=r"\$int"):
        payload_hash({"operation_parameters": {"properties": {"limit": {"$int": value}}}})


def test_the_older_rule_stays_as_it_was() -> None:
    """`printf '{"n":"9007199254740993"}' | sha256sum`"""
    written = "3bbb752b000e9ac58b939c07bb99307d18ccc5be92189d3c32738ec24c98579f"
    assert payload_hash({"n": 2**53 + 1}, rule=1) == payload_hash({"n": str(2**53 + 1)}, rule=1) == written
    assert payload_hash({"n": {"$int": "5"}}, rule=1)


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
