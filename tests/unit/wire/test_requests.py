"""The requests and answers of the proposal's Appendix: what is accepted, what is refused, and the field named."""

import json
import traceback
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delegation.edge.api.routes import read_idempotency_key
from delegation.edge.errors import BadRequest
from delegation.edge.requests import read_payload
from delegation.wire.requests import MAX_NAME_LENGTH
from delegation.wire.responses import (
    ErrorResponse,
    ExecutionResult,
    KeptFiles,
    TaskAccepted,
    TaskSuccessResponse,
    render,
)
from delegation.wire.tables import OPERATIONS, PurgePayload
from delegation.wiring.types import TYPES
from polaris_common.errors import DelegationError
from tests.unit.edge.requests import ABSENT, SECRET, changed, identity_only, loaded

COMMON = "common_payload"
PARAMETERS = "operation_parameters"
IDENTITY = "operation_parameters/table_identity"
METADATA = "operation_parameters/metadata"


def read(body: dict[str, Any], *, identity_only: bool = False) -> PurgePayload:
    found: PurgePayload = read_payload(body, TYPES.forms_by_operation, identity_only=identity_only)[1]
    return found


def test_a_load_table_result_is_read() -> None:
    payload = read(loaded())
    parameters = payload.operation_parameters
    assert payload.common_payload.request_timestamp_utc == datetime(2025, 6, 11, 16, 21, tzinfo=UTC)
    assert parameters.metadata is not None
    assert parameters.metadata.table_uuid == "9c12d441-03fe-4693-9a96-a0705ddf69c1"
    assert parameters.metadata.format_version == 2
    assert parameters.metadata_location == "s3://lake/ns1/t1/metadata/00002-aa.metadata.json"
    assert parameters.table_identity.namespace_levels == ("NS1", "NESTED1")
    assert parameters.properties == {"skipTrash": "true", "deleteMarkerFiles": "false"}


def test_a_whole_number_may_have_a_fraction_of_zero() -> None:
    """JSON Schema counts it as an integer (2020-12, Validation, Section 6.1.1), and so does RFC 8785."""
    metadata = read(changed(loaded(), f"{METADATA}/format-version", 2.0)).operation_parameters.metadata
    assert metadata is not None
    assert (metadata.format_version, type(metadata.format_version)) == (2, int)


def test_the_identity_alone_is_enough_but_for_the_synchronous_endpoint() -> None:
    payload = read(identity_only(), identity_only=True)
    assert payload.operation_parameters.metadata is None
    assert payload.operation_parameters.table_identity.table_name == "T1"
    with pytest.raises(BadRequest) as refused:
        read(identity_only())
    assert str(refused.value) == "operation_parameters.metadata_location: is required"
    assert refused.value.others == (
        "operation_parameters.metadata: is required",
        "operation_parameters.config: is required",
    )


@pytest.mark.parametrize("member", ["metadata_location", "metadata", "config"])
@pytest.mark.parametrize("identity_enough", [False, True])
def test_an_incomplete_load_table_result_is_refused_by_both_endpoints(member: str, identity_enough: bool) -> None:
    with pytest.raises(BadRequest, match=rf"^operation_parameters\.{member}: is required$"):
        read(changed(loaded(), f"{PARAMETERS}/{member}", ABSENT), identity_only=identity_enough)


def test_credentials_without_a_table_are_refused() -> None:
    body = identity_only()
    body[PARAMETERS]["storage-credentials"] = []
    with pytest.raises(BadRequest, match="metadata_location: is required"):
        read(body, identity_only=True)


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_name_of_the_operation_is_accepted(name: str) -> None:
    assert read(changed(loaded(), f"{COMMON}/operation_type", name)).common_payload.operation_type == name


def test_optional_members_may_be_absent() -> None:
    body = loaded()
    for path in ("request_timestamp_utc", "polaris_correlation_id"):
        body = changed(body, f"{COMMON}/{path}", ABSENT)
    for path in ("storage-credentials", "properties", "table_identity/table_entity_id", "metadata_location"):
        body = changed(body, f"{PARAMETERS}/{path}", ABSENT)
    # As Iceberg spells it.
    body[PARAMETERS]["metadata-location"] = "s3://lake/x.json"
    payload = read(body)
    assert payload.common_payload.request_timestamp_utc is None
    assert payload.operation_parameters.properties == {}
    assert payload.operation_parameters.metadata_location == "s3://lake/x.json"


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00Z", "1899-12-30T00:00:00Z", "1970-01-01T00:30:00+01:00", "3000-01-01T00:00:00Z"],
    ids=["unset in Go and .NET", "spreadsheets", "before the epoch in UTC", "far ahead"],
)
def test_a_time_that_no_clock_shows_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"^common_payload\.request_timestamp_utc: must be a time from 1970 to 2999"):
        read(changed(loaded(), f"{COMMON}/request_timestamp_utc", text))


def test_unknown_members_of_icebergs_documents_are_ignored() -> None:
    body = loaded()
    for place in (body[PARAMETERS]["metadata"], body[PARAMETERS]["storage-credentials"][0]):
        place["later"] = {"any": ["thing"]}
    payload = read(body)
    assert "later" not in payload.model_dump_json()
    assert "snapshots" not in payload.model_dump_json()


@pytest.mark.parametrize(
    ("given_text", "moment"),
    [
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
        ("2999-12-31T23:59:59Z", datetime(2999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2025-06-11t18:21:00.5+02:00", datetime(2025, 6, 11, 16, 21, 0, 500_000, tzinfo=UTC)),
        ("2025-06-11T16:21:00.123456789Z", datetime(2025, 6, 11, 16, 21, 0, 123_456, tzinfo=UTC)),
    ],
)
def test_timestamps_are_converted_to_utc(given_text: str, moment: datetime) -> None:
    common = read(changed(loaded(), f"{COMMON}/request_timestamp_utc", given_text)).common_payload
    assert common.request_timestamp_utc == moment
    assert common.request_timestamp_utc.tzinfo is UTC


NAMES = [
    (ABSENT, "is required"),
    (None, "must be a string"),
    (7, "must be a string"),
    ("", "must not be empty"),
    ("  ", "must not be empty"),
    ("a\x1fb", "must not contain control characters"),
    ("a\x00", "must not contain control characters"),
    ("a\x85", "must not contain control characters"),
    ("..", "must not be a dot segment"),
    ("x" * (MAX_NAME_LENGTH + 1), "must not be longer than 1024 characters"),
]
REFUSED: list[tuple[str, Any, str, str]] = [
    *[(f"{IDENTITY}/table_name", value, "", reason) for value, reason in NAMES],
    *[(f"{IDENTITY}/catalog_name", value, "", reason) for value, reason in NAMES],
    *[(f"{IDENTITY}/namespace_levels", ["a", value], "[1]", reason) for value, reason in NAMES[1:]],
    (f"{IDENTITY}/namespace_levels", [], "", "must hold at least 1"),
    (f"{IDENTITY}/namespace_levels", ["a"] * 65, "", "must hold at most 64"),
    (f"{IDENTITY}/namespace_levels", ["é" * 1000] * 9, "<", "must not be larger than 16384 bytes in total"),
    (f"{IDENTITY}/namespace_levels", "NS1", "", "must be an array"),
    (f"{IDENTITY}/namespace_levels", ABSENT, "", "is required"),
    (f"{IDENTITY}/table_entity_id", "", "", "must not be empty"),
    (IDENTITY, ABSENT, "", "is required"),
    (IDENTITY, ["a"], "", "must be an object"),
    (COMMON, ABSENT, "", "is required"),
    (COMMON, "x", "", "must be an object"),
    (PARAMETERS, ABSENT, "", "is required"),
    (PARAMETERS, None, "", "must be an object"),
    (f"{COMMON}/operation_type", ABSENT, "", "is required"),
    (f"{COMMON}/operation_type", "TABLE_SORT", "", "must be one of SYNCHRONOUS_TABLE_PURGE, TABLE_PURGE, "),
    (f"{COMMON}/operation_type", "table_purge", "", "must be one of"),
    (f"{COMMON}/operation_type", ["TABLE_PURGE"], "", "must be one of"),
    (f"{COMMON}/realm_identifier", ABSENT, "", "is required"),
    (f"{COMMON}/realm_identifier", " ", "", "must not be empty"),
    (f"{COMMON}/polaris_correlation_id", "a\nb", "", "must not contain control characters"),
    (f"{COMMON}/request_timestamp_utc", "2025-06-11T16:21:00", "", "must have an offset from UTC"),
    (f"{COMMON}/request_timestamp_utc", "2025-06-11", "", "must be an RFC 3339 date-time"),
    (f"{COMMON}/request_timestamp_utc", "2025-02-30T00:00:00Z", "", "must be a valid date and time"),
    (f"{COMMON}/request_timestamp_utc", "0001-01-01T00:00:00+23:59", "", "must be a valid date and time"),
    (f"{COMMON}/request_timestamp_utc", 1749658860, "", "must be an RFC 3339 date-time"),
    (f"{PARAMETERS}/metadata_location", "00002-aa.metadata.json", "", "must be an absolute URI"),
    (f"{PARAMETERS}/metadata_location", "s3://lake/\u0007", "", "must not contain control characters"),
    (f"{PARAMETERS}/metadata_location", "s3://lake/" + "x" * 4096, "", "must not be longer than 4096 characters"),
    (f"{PARAMETERS}/metadata-location", "s3://lake/x", "<", "must have either metadata_location or metadata-location"),
    (METADATA, [], "", "must be an object"),
    (f"{METADATA}/location", ABSENT, "", "is required"),
    (f"{METADATA}/location", "", "", "must not be empty"),
    (f"{METADATA}/table-uuid", ABSENT, "", "is required"),
    (f"{METADATA}/table-uuid", "9c12d44103fe46939a96a0705ddf69c1", "", "must be a UUID in its 36-character form"),
    (f"{METADATA}/table-uuid", "not-a-uuid", "", "must be a UUID in its 36-character form"),
    (f"{METADATA}/table-uuid", 7, "", "must be a string"),
    (f"{METADATA}/format-version", ABSENT, "", "is required"),
    (f"{METADATA}/format-version", "2", "", "must be an integer"),
    (f"{METADATA}/format-version", True, "", "must be an integer"),
    (f"{METADATA}/format-version", 2.5, "", "must be an integer"),
    (f"{METADATA}/format-version", 0, "", "must be at least 1"),
    (f"{METADATA}/format-version", 2**31, "", "must be at most 2147483647"),
    (f"{PARAMETERS}/config", [SECRET], "", "must be an object"),
    (f"{PARAMETERS}/config", {"s3.secret-access-key": {"a": SECRET}}, '["s3.secret-access-key"]', "must be a string"),
    (f"{PARAMETERS}/config", {str(n): SECRET for n in range(1001)}, "", "must hold at most 1000"),
    (f"{PARAMETERS}/storage-credentials", {"prefix": SECRET}, "", "must be an array"),
    (f"{PARAMETERS}/storage-credentials", [SECRET], "[0]", "must be an object"),
    (f"{PARAMETERS}/storage-credentials", [{"prefix": "s3://a"}], "[0].config", "is required"),
    (f"{PARAMETERS}/storage-credentials", [{"config": {"a": SECRET}}], "[0].prefix", "is required"),
    (f"{PARAMETERS}/properties", {"a": 1}, ".a", "must be a string"),
    (f"{PARAMETERS}/properties", {"": "1"}, '[""]', "must not be empty"),
    (f"{PARAMETERS}/properties", {"a": "\x00"}, ".a", "must not contain control characters"),
    (f"{PARAMETERS}/properties", {f"p{n}": "x" * 1000 for n in range(40)}, "", "must not be larger than 32768 bytes"),
    (f"{PARAMETERS}/properties", ["a"], "", "must be an object"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "suffix", "reason"), REFUSED)
def test_an_invalid_field_is_named_by_its_path(path: str, value: Any, suffix: str, reason: str) -> None:
    """`suffix` is the path within the value; `<` means that the enclosing object is named."""
    with pytest.raises(BadRequest) as refused:
        read(changed(loaded(), path, value))
    place = path.rpartition("/")[0] if suffix == "<" else path + suffix
    assert refused.value.field == place.replace("/", ".")
    assert refused.value.reason.startswith(reason)


def test_all_invalid_fields_are_reported_at_once() -> None:
    body = changed(changed(loaded(), f"{IDENTITY}/table_name", ""), f"{METADATA}/table-uuid", "x")
    with pytest.raises(BadRequest) as refused:
        read(body)
    assert refused.value.field == "operation_parameters.table_identity.table_name"
    assert refused.value.others == (
        "operation_parameters.metadata.table-uuid: must be a UUID in its 36-character form",
    )


@pytest.mark.parametrize("text", ["{", "}", "{reason}", "{0}", "%s", "{max_length!r}"])
def test_braces_in_names_are_not_placeholders(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(changed(loaded(), f"{PARAMETERS}/properties", {text: 1}))
    assert refused.value.field == f'operation_parameters.properties["{text}"]'


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just(SECRET),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
PATHS = sorted({path for path, *_ in REFUSED})


@given(st.sampled_from(PATHS), anything)
@example(f"{PARAMETERS}/properties", {"0": SECRET})
def test_any_value_is_accepted_or_refused_by_field_name_and_no_secret_is_shown(path: str, value: Any) -> None:
    body = changed(loaded(), path, value)
    refusal: DelegationError | None = None
    try:
        payload = read(body)
    except DelegationError as error:
        refusal = error
    if refusal is None:
        if path in {f"{PARAMETERS}/config", f"{PARAMETERS}/storage-credentials"}:
            assert SECRET not in f"{payload!r} {payload} {payload.model_dump()}"
        return
    assert refusal.code == "INVALID_REQUEST"
    assert str(refusal).startswith(path.partition("/")[0])
    others = refusal.others if isinstance(refusal, BadRequest) else ()
    texts = [str(refusal), repr(refusal), *others, *traceback.format_exception(refusal)]
    assert not any(SECRET in text for text in texts)


def test_a_payload_shows_none_of_its_credentials() -> None:
    payload = read(loaded())
    config = payload.operation_parameters.config
    assert config is not None
    assert config["s3.session-token"].get_secret_value() == SECRET
    shown = [payload, repr(payload), payload.model_dump(), payload.model_dump_json(), payload.model_dump(mode="json")]
    assert SECRET not in " ".join(map(str, shown))


@pytest.mark.parametrize(
    ("sent", "key"),
    [("a", "a"), ("0", "0"), ("A.b_c-9", "A.b_c-9"), ("x" * 255, "x" * 255), (" k-1", "k-1"), ("\tk-1\t ", "k-1")],
)
def test_a_key_of_the_proposals_pattern_is_accepted_without_the_blanks_around_it(sent: str, key: str) -> None:
    """RFC 9110, Section 5.5: a field value does not include leading or trailing whitespace."""
    assert read_idempotency_key([sent]) == key


@pytest.mark.parametrize(
    "key", ["", " ", "-a", ".a", "_a", "a b", "a\n", "é", "a/b", "x" * 256, "a,b", "\u00a0k-1", "k-1\n"]
)
def test_any_other_key_is_refused_naming_the_header(key: str) -> None:
    with pytest.raises(BadRequest, match=r"^Idempotency-Key: must be 1 to 255 characters"):
        read_idempotency_key([key])


def test_a_missing_key_is_accepted_and_two_are_refused() -> None:
    assert read_idempotency_key([]) is None
    with pytest.raises(BadRequest, match=r"^Idempotency-Key: must not be repeated$"):
        read_idempotency_key(["a", "a"])


def test_responses_have_the_members_of_the_proposal() -> None:
    task = "0d4c6d3e-8f2a-5c67-9f0e-3f5f0e1d2c3b"
    accepted = {"delegation_task_id": task, "status": "QUEUED", "status_query_url": f"/v1/tasks/{task}"}
    assert json.loads(render(TaskAccepted(**accepted))) == accepted
    done = {"delegation_task_id": task, "status": "COMPLETED_SUCCESS", "message": "done"}
    result = {"files_deleted": 3, "bytes_deleted": 2**60, "files_kept": 1}
    stated = ExecutionResult(**result, findings=(KeptFiles(code="X", count=1),))
    assert json.loads(render(TaskSuccessResponse(**done, execution_result=stated))) == {
        **done,
        "execution_result": {**result, "findings": [{"code": "X", "count": 1}]},
    }
    failed = ErrorResponse(error_code="X", message="é", delegation_task_id=task, status="FAILED_TERMINAL")
    assert render(failed) == (
        f'{{"error_code":"X","message":"é","delegation_task_id":"{task}","status":"FAILED_TERMINAL",'
        '"type":"/delegation-service/api/docs#X"}'.encode()
    )
