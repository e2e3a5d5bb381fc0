"""Random histories of removals notice a missing safeguard, and a run of them continues where it ended."""

import json
from pathlib import Path

import pytest

from tests.faults.orphans.mutations import MUTATIONS
from tests.faults.orphans.run import first_bad, main


@pytest.mark.parametrize("mutation", [name for name in MUTATIONS if name != "none"])
def test_histories_notice_that_a_safeguard_is_missing(mutation: str) -> None:
    assert first_bad(mutation, range(1, 400)) is not None


def test_a_run_continues_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "done.jsonl"
    known = {"first": 1, "hash_seed": "0", "messages": [], "histories": 100, "swept": 7, "expired": 1, "purged": 2}
    out.write_text(json.dumps(known) + "\n", encoding="utf-8")
    assert main(["--histories", "103", "--out", str(out)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("103 histories with 2 hash seeds: sweeps deleted ")
    assert [json.loads(line)["first"] for line in out.read_text(encoding="utf-8").splitlines()] == [1, 101]
    out.write_text(json.dumps({**known, "bad": 1}) + "\n", encoding="utf-8")
    assert main(["--histories", "100", "--out", str(out)]) == 1
