"""Going back by one release: the former release's own code ends the tasks that today's code began."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.golden.record import MOMENTS_FOLDER, former_release
from tests.golden.test_moments import files_of_events
from tests.paths import ROOT


@pytest.mark.long
def test_the_former_release_continues_what_today_leaves(tmp_path: Path) -> None:
    """Its folder is named after its commit; its tree gets today's `moments.py`, which only drives its code."""
    commit = former_release().name
    archive = subprocess.run(
        ["git", "archive", commit, "functions", "tests", "spark"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"this clone's history has no commit {commit}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
        tree.extractall(tmp_path, filter="data")
    shutil.copy(ROOT / "tests/golden/moments.py", tmp_path / "tests/golden")
    moments = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in MOMENTS_FOLDER.glob("*.json")}
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'functions'}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.moments"],
        cwd=tmp_path,
        env=environment,
        input=json.dumps(moments),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    assert ends.keys() == moments.keys()
    for name, (statuses, deleted) in ends.items():
        assert set(statuses) == {"SUCCESS"}, name
        assert deleted == files_of_events(), name
