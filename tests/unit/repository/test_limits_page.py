"""docs/limits.md states the numbers of the code."""

import pytest

from delegation.edge.requests import MAX_BODY_BYTES
from delegation.gateway.app import LARGEST_ANSWER, LARGEST_BODY
from delegation.iceberg.metadata import FORMAT_VERSIONS, MAX_METADATA_BYTES
from delegation.orchestration.job_runs import JobConfiguration
from delegation.orchestration.sweep import HEADS_READ
from delegation.removal.purge.requests import PurgeSettings
from delegation.tasks.work.submission import MOST_PAYLOAD
from delegation.wire import requests
from infra.environment.functions import FUNCTIONS
from infra.environment.resources import Resources
from infra.settings import Settings
from tests.paths import DOCS, ROOT

TEXT = (DOCS / "limits.md").read_text(encoding="utf-8")
KIB, MIB = 1024, 1024 * 1024
PURGES = PurgeSettings()
QUEUE_MINUTES = Settings.model_fields["emr_queue_minutes"].default
SYNCHRONOUS_SECONDS = Resources()["synchronous_budget_seconds"]
JOB_HOURS = JobConfiguration.__dataclass_fields__["timeout_minutes"].default // 60


@pytest.mark.parametrize(
    "stated",
    [
        f"| body of a request | {MAX_BODY_BYTES:,} bytes |",
        f"| body of a request through the gateway | {LARGEST_BODY:,} bytes |",
        f"| body of an answer through the gateway | {LARGEST_ANSWER:,} bytes |",
        f"| name of a catalog, namespace level or table | {requests.MAX_NAME_LENGTH:,} characters |",
        f"| a location | {requests.MAX_URI_LENGTH:,} characters |",
        f"| levels of a namespace | {requests.MAX_NAMESPACE_LEVELS} |",
        f"| properties of a request | {requests.MAX_PROPERTIES_BYTES // KIB} KiB |",
        f"| payload of a task | {MOST_PAYLOAD // KIB} KiB |",
        f"| metadata.json, also after decompression | {MAX_METADATA_BYTES // MIB} MiB |",
        f"| {PURGES.max_file_bytes // MIB} MiB (`OBJECT_TOO_LARGE`) |",
        f"| {PURGES.inline_max_files:,} (`delegation:inline-max-files`)",
        f"within {PURGES.longest_planning_seconds:.0f} s and {PURGES.most_read_ahead_bytes // MIB} MiB",
        f"| format versions | {', '.join(map(str, sorted(FORMAT_VERSIONS)[:-1]))} and {max(FORMAT_VERSIONS)};",
        f"| {SYNCHRONOUS_SECONDS} s of work;",
        f"| {FUNCTIONS['run_inline'].timeout_seconds} s, then",
        f"| {JOB_HOURS} hours after at most {QUEUE_MINUTES // 60} hours (`delegation:emr-queue-minutes`)",
        f"| the {HEADS_READ} open tasks whose next check is nearest",
    ],
)
def test_a_number_of_the_page_is_that_of_the_code(stated: str) -> None:
    assert stated in TEXT


def test_the_page_says_what_a_purge_does_not_free() -> None:
    assert all(words in TEXT for words in ("unfinished multipart uploads", "VERSIONED_BUCKET", "UNSUPPORTED_LOCATION"))
    calls = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "functions/delegation/storage").glob("*.py"))
    assert not [call for call in ("list_multipart_uploads", "list_object_versions", "VersionId=") if call in calls]
