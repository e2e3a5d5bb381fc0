"""Which Iceberg runtimes may rewrite which tables."""

import pytest

from delegation.rewrites.context import DataFilesRewrite, ManifestsRewrite, Rewrite
from delegation.rewrites.errors import RewriteError
from delegation.rewrites.runtimes import FAULTS, PINNED, check_runtime, version_of

FILES, MANIFESTS = DataFilesRewrite(), ManifestsRewrite()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1.12.0", (1, 12, 0)),
        ("1.10.1-amzn-0", (1, 10, 1)),
        ("1.12", (1, 12, 0)),
        ("2.0.0-SNAPSHOT", (2, 0, 0)),
        ("unknown", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_the_jar_states(text: str, numbers: tuple[int, int, int] | None) -> None:
    assert version_of(text) == numbers


@pytest.mark.parametrize("version", ["1.10.1", "1.10.2", "1.11.0", "1.9.2", "1.10.1-amzn-0", "unknown"])
def test_manifests_of_a_v3_table_are_not_rewritten_by_a_runtime_that_loses_row_ids(version: str) -> None:
    with pytest.raises(RewriteError, match="changes row ids"):
        check_runtime(version, MANIFESTS, {"format-version": 3})
    check_runtime(version, MANIFESTS, {"format-version": 2})
    check_runtime(version, FILES, {"format-version": 3})


@pytest.mark.parametrize("version", ["1.10.3", "1.11.1", PINNED, "1.12.1", "1.13.0", "2.0.0"])
@pytest.mark.parametrize("rewrite", [FILES, MANIFESTS])
@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_sound_runtimes_rewrite_every_table(version: str, rewrite: Rewrite, format_version: int) -> None:
    check_runtime(version, rewrite, {"format-version": format_version})


def test_the_pinned_runtime_has_none_of_the_faults() -> None:
    pinned = version_of(PINNED)
    assert pinned is not None
    assert not any(fault.is_in(pinned) for fault in FAULTS)


def test_a_table_of_a_later_format_is_refused() -> None:
    with pytest.raises(RewriteError, match="format version 4"):
        check_runtime(PINNED, FILES, {"format-version": 4})
