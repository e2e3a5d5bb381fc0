"""The stand-in's rules for names and locations, as Polaris' StorageLocation and EntityNameValidator have them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.local.catalog.errors import RestError
from infra.local.catalog.layout import check_names, is_below, used_by
from infra.local.catalog.privileges import OPERATIONS, SERVICE, Privilege, including
from tests.effort import examples

PARTS = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4)
LOCATIONS = st.builds(
    lambda scheme, parts, end: f"{scheme}://bucket/{'/'.join(parts)}{end}",
    st.sampled_from(["s3", "s3a"]),
    PARTS,
    st.sampled_from(["", "/"]),
)


@pytest.mark.parametrize(
    ("location", "parent", "below"),
    [
        ("s3://b/ns/t", "s3://b/ns/t/", True),
        ("s3a://b/ns/t/data", "s3://b/ns/t", True),
        ("s3://b/ns/t2", "s3://b/ns/t", False),
        ("s3://b/ns", "s3://b/ns/t", False),
        ("s3://b2/ns/t", "s3://b/ns/t", False),
    ],
)
def test_a_location_is_below_another_by_whole_components(location: str, parent: str, below: bool) -> None:
    assert is_below(location, parent) is below


@settings(max_examples=examples(100))
@given(LOCATIONS, LOCATIONS, LOCATIONS)
def test_below_is_an_order(one: str, two: str, three: str) -> None:
    assert is_below(one, one)
    if is_below(one, two) and is_below(two, three):
        assert is_below(one, three)


@settings(max_examples=examples(100))
@given(LOCATIONS, st.none() | LOCATIONS, st.none() | LOCATIONS)
def test_what_a_table_uses_covers_all_its_locations_without_one_inside_another(location, data, metadata):
    given_paths = {"write.data.path": data, "write.metadata.path": metadata}
    properties = {name: path for name, path in given_paths.items() if path is not None}
    used = used_by({"location": location, "properties": properties})
    for path in (location, *properties.values()):
        assert any(is_below(path, one) for one in used)
    assert not [one for one in used for other in used if one != other and is_below(one, other)]


@settings(max_examples=examples(200))
@given(st.text(max_size=4))
def test_a_name_is_refused_exactly_for_what_polaris_names(name: str) -> None:
    control = any(ord(each) < 0x20 or 0x7F <= ord(each) <= 0x9F for each in name)
    bad = not name or name in {".", ".."} or control or any(each in '/\\:*?"<>|#+`' for each in name)
    if bad or name != name.strip():
        with pytest.raises(RestError):
            check_names(name)
    else:
        check_names(name)


def test_every_operation_needs_something_and_a_privilege_includes_itself() -> None:
    assert all(needed.on_target for needed in OPERATIONS.values())
    assert all(privilege in including(privilege) for privilege in Privilege)


def test_the_services_privileges_load_with_credentials_and_drop_nothing() -> None:
    for operation, allowed in (
        ("LOAD_TABLE_WITH_WRITE_DELEGATION", True),
        ("LIST_NAMESPACES", True),
        ("LIST_TABLES", True),
        ("DROP_TABLE_WITHOUT_PURGE", False),
        ("CREATE_TABLE_DIRECT", False),
        ("DROP_NAMESPACE", False),
    ):
        assert all(including(needed) & SERVICE for needed in OPERATIONS[operation].on_target) is allowed, operation
