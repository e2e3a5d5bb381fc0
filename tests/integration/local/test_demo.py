"""The demo in a separate process, as `make demo` runs it."""

import json
import os
import subprocess
import sys

import pytest

from infra.local.processes.programs import import_path
from tests.paths import ROOT

LIFE = ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]


@pytest.mark.long
@pytest.mark.stack
@pytest.mark.spark
def test_demo_purges_two_tables_expires_snapshots_of_one_and_does_not_change_a_fourth(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "infra.local.demo", "--state-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": import_path()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))
    assert found["sibling_intact"] is True
    assert [(table["engine"], table["status"], table["objects_left"]) for table in found["tables"]] == [
        ("inline", "SUCCESS", 0),
        ("spark", "SUCCESS", 0),
    ]
    assert [[row["status"] for row in table["versions"]] for table in found["tables"]] == [LIFE, LIFE]
    assert all(table["files_deleted"] == table["files_before"] > 0 for table in found["tables"])
    expired = found["expired"]
    assert (expired["status"], expired["snapshots_left"], expired["rows_same"]) == ("SUCCESS", 2, True)
    assert expired["policy"] == "lake.shop.keep-newest"
    assert expired["snapshots_before"] > 2
    assert expired["bytes_freed"] > 0
    # The commit wrote one object, the table's new metadata.
    assert expired["files_deleted"] == expired["objects_before"] + 1 - expired["objects_left"] > 0
    assert not (tmp_path / "stack.json").exists()  # the stack has ended and its credentials are deleted
