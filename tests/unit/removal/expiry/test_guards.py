"""Which tables' snapshots may be expired at all."""

from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.iceberg.errors import CorruptMetadata
from delegation.iceberg.metadata import parse_metadata
from delegation.removal.expiry.errors import check_table
from tests.kit.errors import coded

UUID = "0b1c6f2e-3c7f-4d2b-9a50-2f6d3f1f7a11"


def check(*, table_uuid: str = UUID, **changed: Any) -> None:
    document = {
        "format-version": 3,
        "table-uuid": UUID,
        "location": "s3://b/t",
        "last-updated-ms": 1,
        "properties": {},
        "snapshots": [{"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": "s3://b/t/metadata/snap-1.avro"}],
        **changed,
    }
    check_table(parse_metadata("s3://b/t/metadata/1.metadata.json", document), table_uuid=table_uuid)


def test_an_ordinary_table_is_not_refused() -> None:
    check()
    check(table_uuid=UUID.upper(), properties={"gc.enabled": "TRUE", "delegation.protected": "False"})


ENCRYPTED = {"snapshot-id": 7, "timestamp-ms": 1, "manifest-list": "s3://b/t/metadata/snap-7.avro", "key-id": "k"}


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"properties": {"gc.enabled": "false"}}, "GC_DISABLED", "gc.enabled is false"),
        ({"properties": {"gc.enabled": "yes"}}, "GC_DISABLED", "gc.enabled"),
        ({"properties": {"delegation.protected": "yes"}}, "TABLE_PROTECTED", "no expiry deletes"),
        ({"properties": {"encryption.key-id": "k"}}, "UNSUPPORTED", "encryption.key-id is set"),
        ({"snapshots": [ENCRYPTED]}, "UNSUPPORTED", "snapshot 7 has an encryption key"),
        ({"table_uuid": UUID.replace("0", "1")}, "TABLE_UUID_MISMATCH", "send a new expiry"),
        ({"format-version": 4}, "UNSUPPORTED_FORMAT_VERSION", "version 4"),
    ],
)
def test_a_table_that_must_stay_as_it_is_is_refused(changed: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(GuardRefused, match=text, check=coded(code)):
        check(**changed)


def test_unreadable_metadata_is_refused() -> None:
    with pytest.raises(CorruptMetadata):
        check(snapshots=[{"snapshot-id": 1}])
    with pytest.raises(CorruptMetadata):
        check(properties=["gc.enabled"])
