"""Going back by one release: the former release's own code ends the tasks that today's code began."""

import json
import os
import subprocess
import sys

import pytest

from tests.golden.record import MOMENTS_FOLDER
from tests.golden.test_moments import files_of_events
from tests.golden.upgrade import NoHistory, former_tree


@pytest.mark.long
def test_the_former_release_continues_what_today_leaves() -> None:
    moments = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in MOMENTS_FOLDER.glob("*.json")}
    try:
        with former_tree() as tree:
            done = subprocess.run(
                [sys.executable, "-m", "tests.golden.moments"],
                cwd=tree,
                env={**os.environ, "PYTHONPATH": f"{tree / 'functions'}{os.pathsep}{tree}"},
                input=json.dumps(moments),
                capture_output=True,
                text=True,
                check=False,
            )
    except NoHistory as error:
        pytest.skip(str(error))
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    assert ends.keys() == moments.keys()
    for name, (statuses, deleted) in ends.items():
        assert set(statuses) == {"SUCCESS"}, name
        assert deleted == files_of_events(), name
