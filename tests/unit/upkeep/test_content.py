"""The content of a policy: what its type has, and nothing of what a stranger may write besides."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.upkeep.rules.model import LONGEST_CONTENT, PolicyInvalid, PolicyType, content_of

EXPIRY, ORPHANS = PolicyType.SNAPSHOT_EXPIRY, PolicyType.ORPHAN_FILE_REMOVAL


@pytest.mark.parametrize("type_", PolicyType)
@pytest.mark.parametrize(
    "members", [{}, {"version": "2025-02-03"}, {"version": ""}, {"version": None}, {"config": None}, {"config": {}}]
)
def test_what_polaris_stores_is_read(type_: PolicyType, members: dict[str, Any]) -> None:
    content = content_of(type_, json.dumps({"enable": True, **members}))
    assert (content.enable, content.values()) == (True, {})


def test_values_are_those_of_config_and_of_the_members() -> None:
    config = {"a": 1, "b": "x", "c": True, "d": 0.5}
    assert content_of(EXPIRY, json.dumps({"enable": False, "config": config})).values() == config
    orphans = {"max_orphan_file_age_in_days": 7, "locations": ["s3://b/t"]}
    found = content_of(ORPHANS, json.dumps({"enable": True, "config": config, **orphans})).values()
    assert found == {**config, "max_orphan_file_age_in_days": 7, "locations": ("s3://b/t",)}


def test_a_key_of_config_is_not_the_member_of_its_name() -> None:
    text = json.dumps({"enable": True, "config": {"max_orphan_file_age_in_days": 0, "locations": "s3://b"}})
    assert content_of(ORPHANS, text).values() == {
        "config.max_orphan_file_age_in_days": 0,
        "config.locations": "s3://b",
    }


NO_CONTENTS = [
    *("", "null", "[]", "1", "{", "{}", "[" * 60_000, '{"enable": true}' + " " * LONGEST_CONTENT),
    *('{"enable": null}', '{"enable": 1}', '{"enable": "true"}', '{"enable": true, "enable": false}'),
    *('{"enable": true, "version": "2024-01-01"}', '{"enable": true, "other": 1}', '{"enable": true, "locations": []}'),
]
NO_CONFIGS = [
    *("[]", '{"a": 1, "a": 2}', '{"a": null}', '{"a": []}', '{"a": {}}', '{"a": NaN}', '{"a": -Infinity}'),
    *('{"a": 1' + "0" * 5000 + "}", '{"a": "' + "x" * 1001 + '"}', '{"' + "x" * 201 + '": 1}'),
    json.dumps({str(number): 1 for number in range(101)}),
]


@pytest.mark.parametrize("text", [*NO_CONTENTS, *(f'{{"enable": true, "config": {text}}}' for text in NO_CONFIGS)])
def test_what_is_no_content_is_refused_without_being_repeated_at_length(text: str) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        content_of(EXPIRY, text)
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize("age", ["7", True, [7]])
def test_the_age_of_orphans_is_a_number(age: Any) -> None:
    with pytest.raises(PolicyInvalid):
        content_of(ORPHANS, json.dumps({"enable": True, "max_orphan_file_age_in_days": age}))


@given(
    st.text(max_size=300) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps)
)
def test_any_text_is_a_content_or_refused(text: str) -> None:
    for type_ in PolicyType:
        try:
            content_of(type_, text)
        except PolicyInvalid:
            continue
