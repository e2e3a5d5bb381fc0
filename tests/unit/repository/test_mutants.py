"""The list of mutants that `make mutants` runs: every edit still applies, and every test that it names exists."""

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

LINE_12 = pytest.mark.xfail(strict=True, reason="issue 13, line 12: there is no list of mutants, and no make mutants")


@LINE_12
def test_every_mutant_changes_one_place_of_the_code_and_names_tests_that_exist() -> None:
    from tests.mutants.listed import MUTANTS

    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12
    for mutant in MUTANTS:
        source = (ROOT / mutant.path).read_text(encoding="utf-8")
        assert source.count(mutant.before) == 1, mutant.name
        assert mutant.after not in {mutant.before, ""}, mutant.name
        for test in mutant.tests:
            path, _, name = test.partition("::")
            defined = re.findall(r"^def (\w+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
            assert not name or name.partition("[")[0] in defined, f"{mutant.name}: {test}"


@LINE_12
def test_a_mutant_that_survives_is_named_and_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.mutants.__main__ import run
    from tests.mutants.listed import Mutant

    (tmp_path / "code.py").write_text("LIMIT = 3\nSPARE = 1\n")
    (tmp_path / "test_code.py").write_text("from code import LIMIT\n\ndef test_limit():\n    assert LIMIT == 3\n")
    dies = Mutant("another limit", "code.py", "LIMIT = 3", "LIMIT = 4", ("test_code.py",))
    survives = Mutant("another spare", "code.py", "SPARE = 1", "SPARE = 2", ("test_code.py::test_limit",))
    gone = Mutant("no such text", "code.py", "ABSENT", "PRESENT", ("test_code.py",))
    assert run([dies], tmp_path) == 0
    assert run([dies, survives], tmp_path) == 1
    assert "SURVIVED  another spare" in capsys.readouterr().out
    assert run([gone], tmp_path) == 2
    assert (tmp_path / "code.py").read_text() == "LIMIT = 3\nSPARE = 1\n"


@LINE_12
def test_make_runs_the_mutants() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^mutants: .*## ", makefile, re.MULTILINE)
    assert re.search(r"^\.PHONY:.* mutants", makefile, re.MULTILINE)
