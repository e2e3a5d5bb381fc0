"""The fixtures have the cases they are named for, and fastavro reads the same files from them as Iceberg."""

import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from tests.fixtures import corpus
from tests.fixtures.corpus import FixtureTable, Scenario, plain
from tests.unit.removal.purge.oracle.oracle import Purge, metadata_of, tables

CODECS = ("null", "deflate", "snappy", "zstandard")
KINDS = ("data", "position-deletes", "equality-deletes")


def found(scenario: str, table: str) -> tuple[Scenario, FixtureTable, dict[str, Any]]:
    purge = Purge(scenario, table)
    return purge.scenario, purge.table, metadata_of(purge.scenario, purge.table)


def records(scenario: Scenario, path: str) -> Iterator[Any]:
    return iter(fastavro.reader(io.BytesIO(scenario.content[plain(path)])))


def entries(scenario: Scenario, table: FixtureTable) -> list[Any]:
    return [entry for path in table.kinds.get("manifest", ()) for entry in records(scenario, path)]


@pytest.mark.parametrize(("name", "table"), tables())
def test_fastavro_finds_the_same(name: str, table: str) -> None:
    scenario, fixture, metadata = found(name, table)
    lists = [one["manifest-list"] for one in metadata.get("snapshots", []) if "manifest-list" in one]
    manifests = {path for one in metadata.get("snapshots", []) for path in one.get("manifests", [])}
    manifests |= {one["manifest_path"] for path in lists for one in records(scenario, path)}
    assert set(fixture.kinds.get("manifest-list", ())) == set(lists)
    assert set(fixture.kinds.get("manifest", ())) == manifests
    files: dict[str, set[str]] = {}
    live = set()
    for entry in entries(scenario, fixture):
        file = entry["data_file"]
        files.setdefault(KINDS[file.get("content", 0)], set()).add(file["file_path"])
        if entry["status"] != 2:
            live.add(file["file_path"])
    assert {kind: set(fixture.kinds[kind]) for kind in KINDS if kind in fixture.kinds} == files
    assert set(fixture.only_deleted) == {path for paths in files.values() for path in paths} - live


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_codec_in_every_version(codec: str, version: int) -> None:
    scenario, table, metadata = found("codecs", f"v{version}_{codec}")
    assert metadata["format-version"] == version
    headers = {
        fastavro.reader(io.BytesIO(scenario.content[plain(path)])).metadata.get("avro.codec", "null")
        for path in table.kinds["manifest"]
    }
    assert headers == {codec}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_has_every_history(version: int) -> None:
    """test_mutants.py needs those of the other cases."""
    scenario, table, metadata = found("evolution", f"v{version}")
    assert len(metadata["partition-specs"]) >= 4
    listed = [one for path in table.kinds["manifest-list"] for one in records(scenario, path)]
    assert len({record["partition_spec_id"] for record in listed}) >= 3
    assert set(found("branches", f"v{version}")[2]["refs"]) == {"main", "first", "kept"}
    scenario, table, _ = found("expired", f"v{version}_cleaned")
    assert table.reached() - set(scenario.objects)
    _, table, metadata = found("statistics", f"v{version}")
    assert (len(metadata["statistics"]), len(metadata["partition-statistics"])) == (2, 2)
    assert any(one["summary"]["operation"] == "replace" for one in found("rewritten", f"v{version}")[2]["snapshots"])


def test_the_fixtures_have_every_kind_of_delete_file() -> None:
    assert "equality-deletes" in found("row_deletes", "equality_v2")[1].kinds
    assert "equality-deletes" in found("row_deletes", "equality_v3")[1].kinds
    scenario, table, _ = found("row_deletes", "positions")
    assert {entry["data_file"]["file_format"] for entry in entries(scenario, table)} == {"PARQUET"}
    assert table.kinds["position-deletes"]
    scenario, table, _ = found("row_deletes", "vectors")
    vectors = [entry["data_file"] for entry in entries(scenario, table) if entry["data_file"]["content"] == 1]
    assert {one["file_format"] for one in vectors} == {"PUFFIN"}
    together = Counter(path for path, _ in {(one["file_path"], one["content_offset"]) for one in vectors})
    assert max(together.values()) > 1
    formats = {entry["data_file"]["file_format"] for entry in entries(*found("row_deletes", "upgraded")[:2])}
    assert formats == {"PARQUET", "PUFFIN"}


def test_the_fixtures_have_every_kind_of_metadata() -> None:
    scenario, table, _ = found("metadata", "gzip")
    assert scenario.content[table.metadata_location][:2] == b"\x1f\x8b"
    for name, every in (("inline", True), ("mixed", False)):
        snapshots = found("inline_manifests", name)[2]["snapshots"]
        assert all("manifests" in one for one in snapshots) is every
        assert any("manifests" in one for one in snapshots)
    assert found("metadata", "never_written")[1].kinds.keys() == {"metadata"}
    _, table, metadata = found("metadata", "short_log")
    assert len(table.kinds["former-metadata"]) > len(metadata["metadata-log"]) == 2
    scenario, table, _ = found("metadata", "log_gone")
    assert len(table.reached() - set(scenario.objects)) == 2


def test_the_fixtures_are_small_and_name_the_versions_that_wrote_them() -> None:
    assert sum(path.stat().st_size for path in corpus.FOLDER.iterdir()) < 1_500_000
    for name in corpus.names():
        assert corpus.load(name).written_with == {"spark": "4.1.4", "iceberg": "1.11.0"}
