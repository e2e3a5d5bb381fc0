"""The list of long targets beside the Makefile, the rotation of landings, and how one target is run."""

import ast
import os
import re
import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from tests.kit.sources import modules, tree_of
from tests.paths import ROOT
from tests.release_check import persistence
from tests.release_check.__main__ import FAILED, OK, SKIPPED, TIMED_OUT, in_log, load, run, store, table, tried
from tests.release_check.targets import LANDINGS, MINUTES, NOT_LONG, TARGETS, LongTarget, due

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
NOW = datetime(2026, 11, 28, tzinfo=UTC)


def test_every_target_of_the_makefile_is_in_the_list_or_has_a_reason_why_not() -> None:
    there = {*re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILE, re.MULTILINE)}
    listed = {target.words[0] for target in TARGETS} - {"test"}
    assert listed & NOT_LONG.keys() == set()
    assert listed | NOT_LONG.keys() | {"test"} == there
    names = [target.name for target in TARGETS]
    assert len({*names}) == len(names)


def test_every_folder_with_long_tests_is_run_by_a_target_of_the_list() -> None:
    recipes = [
        *(" ".join(target.words) for target in TARGETS),
        *(
            recipe
            for target in TARGETS
            for recipe in re.findall(rf"^{target.words[0]}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
        ),
    ]
    run_by_name = {"tests/alarms": "alarms-drill", "tests/canonical": "canonical"}
    assert {*run_by_name.values()} <= {target.name for target in TARGETS}
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.long" in path.read_text(encoding="utf-8") and path != Path(__file__)
    }
    left = {one for one in marked if "/".join(one.split("/")[:2]) not in run_by_name}
    assert {one for one in left if not any("/".join(one.split("/")[:2]) in recipe for recipe in recipes)} == {
        one
        for one in left
        if one.startswith("tests/s3_servers/")  # its recipe names the module
    }


@pytest.mark.parametrize(("name", "runs"), [("bench-check", 2), ("oracle", 1)])
def test_only_timings_may_fail_once(name: str, runs: int) -> None:
    target, results = next(one for one in TARGETS if one.name == name), [FAILED, OK]
    record = tried(target, "commit", lambda *_: {"result": results.pop(0)})
    assert (2 - len(results), record["result"]) == (runs, OK if runs == 2 else FAILED)


def test_no_target_is_stopped_before_twice_the_time_that_it_took() -> None:
    """A landing failed because a target that took longer at each change was still stopped after eight minutes."""
    took = {name: found["seconds"] for name, found in load().items() if "seconds" in found}
    assert [target.name for target in TARGETS if 2 * took.get(target.name, 0) > 60 * target.minutes] == []
    assert [target.name for target in TARGETS if not 0 < target.minutes <= 20] == []


@pytest.mark.parametrize("seed", range(20))
def test_every_target_has_run_after_so_many_landings_whatever_ran_before(seed: int) -> None:
    random = Random(seed)
    records = {
        target.name: NOW - timedelta(minutes=random.randrange(10_000)) for target in TARGETS if random.random() < 0.8
    }
    ran: set[str] = set()
    for landing in range(LANDINGS):
        chosen = due(records)
        assert sum(target.minutes for target in chosen) <= MINUTES
        for target in chosen:
            records[target.name] = NOW + timedelta(hours=landing)
            ran.add(target.name)
    assert ran == {target.name for target in TARGETS}


def makefile(monkeypatch: pytest.MonkeyPatch, folder: Path, recipe: str) -> LongTarget:
    (folder / "Makefile").write_text(f"it:\n\t@{recipe}\n", encoding="utf-8")
    for name, value in {"ROOT": folder, "LOGS": folder / "logs"}.items():
        monkeypatch.setattr(f"tests.release_check.__main__.{name}", value)
    return LongTarget("it", 1, ("it",))


@pytest.mark.parametrize(
    ("recipe", "result"),
    [("echo fine", OK), ("echo 'planted fault'; exit 3", FAILED), ("echo 'skipped: no Go'", SKIPPED)],
)
def test_a_target_has_the_result_of_its_recipe(
    recipe: str, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(makefile(monkeypatch, tmp_path, recipe), "abc")["result"] == result
    assert ("planted fault" in capsys.readouterr().out) == (result == FAILED)


def test_a_target_does_not_get_what_the_check_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGS", "--due")
    monkeypatch.setenv("MAKEFLAGS", "n -- ARGS=--due")
    assert run(makefile(monkeypatch, tmp_path, "test -z '$(ARGS)'"), "abc")["result"] == OK


def test_a_target_that_takes_longer_than_its_bound_is_stopped_with_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = makefile(monkeypatch, tmp_path, "sleep 500 & echo $$! > pid; wait")
    assert run(target, "abc", seconds=2)["result"] == TIMED_OUT
    left = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{left}/stat")
    if Path("/proc/self").exists():
        deadline = time.monotonic() + 10  # a process that was sent SIGKILL may run on for a moment
        while is_alive(state) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_alive(state)
    else:
        with pytest.raises(ProcessLookupError):
            os.kill(left, 0)


def is_alive(state: Path) -> bool:
    """Return whether the process of a /proc/PID/stat exists and is no zombie."""
    try:
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def record(name: str, result: str, hour: int) -> dict[str, object]:
    at = (NOW + timedelta(hours=hour)).isoformat()
    return {"target": name, "result": result, "seconds": 5, "commit": "abc", "at": at}


def test_what_failed_stays_due_and_an_older_log_replaces_no_record(tmp_path: Path) -> None:
    place = tmp_path / "long.json"
    store([record("docs", OK, 1), record("drill", OK, 1), record("former-target", OK, 1)], place)
    store([record("docs", FAILED, 3), record("drill", OK, 0), record("canonical", SKIPPED, 2)], place)
    found = load(place)
    assert {name: (one["result"], one["at"][11:13]) for name, one in found.items()} == {
        "docs": (OK, "01"),
        "drill": (OK, "01"),
        "canonical": (SKIPPED, "02"),
    }


def test_records_are_found_in_a_log_and_the_table_has_totals() -> None:
    log = 'noise\nrecord: {"target": "docs", "result": "ok", "seconds": 7}\nrecords: none\n'
    assert in_log(log) == [{"target": "docs", "result": OK, "seconds": 7}]
    assert table([record("docs", OK, 1), record("drill", TIMED_OUT, 1)])[-1] == (
        "release-check: 2 targets, 1 ok, 1 timed out, 10 s"
    )


def files_of(path: Path) -> set[Path]:
    """Return the files of tests and infra that a module imports."""
    names: set[str] = set()
    for one in ast.walk(tree_of(path)):
        if isinstance(one, ast.Import):
            names |= {each.name for each in one.names}
        elif isinstance(one, ast.ImportFrom):
            names |= {str(one.module), *(f"{one.module}.{each.name}" for each in one.names)}
    parts = [name.split(".") for name in names if name.partition(".")[0] in {"infra", "tests"}]
    return {file for each in parts if (file := ROOT.joinpath(*each).with_suffix(".py")).exists()}


def test_what_decides_the_outcome_of_the_persistences_tests_is_among_their_inputs() -> None:
    assert [one for one in persistence.INPUTS if not (ROOT / one).exists()] == []
    left, seen = [*modules("tests/persistence")], set[Path]()
    while left:
        if (path := left.pop()) not in seen:
            seen.add(path)
            left += files_of(path)
    assert ROOT / "tests/kit/clocks.py" in seen
    inputs = [ROOT / one for one in persistence.INPUTS]
    assert [path for path in seen if not any(path.is_relative_to(one) for one in inputs)] == []
    for path in modules("tests/persistence"):
        text = path.read_text(encoding="utf-8")
        assert re.search(r"^\s*(from|import) delegation", text, re.MULTILINE) is None, path
        for name in re.findall(r'"fixtures" / "(\w+)"', text):
            assert f"tests/fixtures/{name}" in persistence.INPUTS


def test_the_persistences_tests_run_again_when_one_of_their_inputs_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=tmp_path, check=True)

    def digest() -> str | None:
        return persistence.digest(tmp_path, ("in", "constraints.txt"))

    (tmp_path / "in").mkdir()
    for name in ("in/one.py", "constraints.txt", "other.py"):
        (tmp_path / name).write_text("1", encoding="utf-8")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    first = digest()
    known = {persistence.GROUP: {"inputs": first}}
    assert persistence.passed_before(known, first)
    assert not persistence.passed_before({}, first)
    (tmp_path / "other.py").write_text("2", encoding="utf-8")
    assert digest() == first
    (tmp_path / "in" / "new.py").write_text("2", encoding="utf-8")
    assert digest() is None
    assert not persistence.passed_before({persistence.GROUP: {}}, None)
    git("add", ".")
    git("commit", "-qm", "two")
    second = digest()
    assert second is not None
    assert not persistence.passed_before(known, second)


@pytest.mark.parametrize(("known", "tests", "prints"), [(0, 0, False), (1, 0, True), (1, 1, False)])
def test_ci_leaves_the_persistences_tests_out_only_if_they_are_known_to_pass(
    tmp_path: Path, known: int, tests: int, prints: bool
) -> None:
    """`prints`: it prints the record, once the tests passed with these among them."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "make"
    stand_in.write_text(
        f"""#!/bin/sh
echo "$* [$PYTEST_ADDOPTS]" >> "{tmp_path}/asked"
case "$*" in
*--persistence*) exit {known} ;;
*test) exit {tests} ;;
esac
""",
        encoding="utf-8",
    )
    stand_in.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    search = {**os.environ, "PATH": f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}", "PYTEST_ADDOPTS": ""}
    done = subprocess.run([tmp_path / ".ci" / "run"], env=search, capture_output=True, text=True, check=False)
    asked = (tmp_path / "asked").read_text(encoding="utf-8")
    left_out = "--ignore=tests/persistence" if known == 0 else ""
    assert f"--no-print-directory test [{left_out}]\n" in asked
    assert ("ARGS=--passed" in asked) is prints
    assert (done.returncode == 0) is (tests == 0)


def test_the_record_of_the_persistences_tests_is_kept(tmp_path: Path) -> None:
    store([persistence.record("abc")], tmp_path / "long.json")
    assert persistence.passed_before(load(tmp_path / "long.json"), "abc")


def test_ci_runs_what_is_due_and_prints_the_summary_of_pytest_last() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    due_at = next(at for at, line in enumerate(lines) if "release-check" in line and "--due" in line)
    summary_at = next(at for at, line in enumerate(lines) if line.startswith("grep -E '^=+"))
    assert due_at < summary_at
    assert not [line for line in lines[summary_at + 1 :] if "echo" in line or "make" in line]
