"""The tables of a chaos run are copies that name only files of their own."""

import json

from tests.chaos.load import Make, TableOfLoad, Way
from tests.chaos.tables import written
from tests.faults.shared.growth import rewritten


def test_a_copy_is_complete_and_names_only_its_own_files():
    one, other = (written(TableOfLoad(name, "a", Make.CLONED, Way.BACKGROUND, 0.0), 7) for name in ("t1", "t2"))
    assert not one.files & other.files
    assert all(file.startswith("s3://warehouse/lake/a/t1/") for file in one.files)
    assert one.early < one.files
    assert {one.metadata_location, one.early_metadata_location} <= one.files
    metadata = json.loads(one.objects[one.metadata_location])
    assert metadata["table-uuid"] != json.loads(other.objects[other.metadata_location])["table-uuid"]
    named = {one.metadata_location}
    for snapshot in metadata["snapshots"]:
        named.add(snapshot["manifest-list"])
        for manifest in records(one.objects[snapshot["manifest-list"]]):
            named.add(manifest["manifest_path"])
            assert manifest["manifest_length"] == len(one.objects[manifest["manifest_path"]])
            named |= {entry["data_file"]["file_path"] for entry in records(one.objects[manifest["manifest_path"]])}
    assert named | {entry["metadata-file"] for entry in metadata["metadata-log"]} == one.files


def records(data):
    found = []
    rewritten(data, lambda some: found.extend(some) or some)
    return found
