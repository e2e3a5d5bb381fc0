"""The list of mutants that `make mutants` runs: every edit still applies, and every test that it names exists."""

import re

from tests.mutants import __main__ as runner
from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import Mutant
from tests.paths import ROOT


def test_every_mutant_changes_one_place_of_the_code_and_names_tests_that_exist() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12
    for mutant in MUTANTS:
        source = (ROOT / mutant.path).read_text(encoding="utf-8")
        assert source.count(mutant.before) == 1, mutant.name
        assert mutant.after != mutant.before, mutant.name
        if mutant.path.endswith(".py"):
            compile(source.replace(mutant.before, mutant.after), mutant.name, "exec")
        for test in mutant.tests:
            path, _, name = test.partition("::")
            defined = re.findall(r"^def (\w+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
            assert not name or name.partition("[")[0] in defined, f"{mutant.name}: {test}"


def test_a_mutant_that_survives_is_named_and_fails_the_run(tmp_path, capsys, monkeypatch):
    """With a stand-in for pytest that notices another limit."""
    monkeypatch.setattr(runner, "passes", lambda copy, _tests: "LIMIT = 3" in (copy / "limits.txt").read_text())
    (tmp_path / "limits.txt").write_text("LIMIT = 3\nSPARE = 1\n")
    dies = Mutant("another limit", "limits.txt", "LIMIT = 3", "LIMIT = 4", ("a test",))
    survives = Mutant("another spare", "limits.txt", "SPARE = 1", "SPARE = 2", ("a test",))
    gone = Mutant("no such text", "limits.txt", "ABSENT", "PRESENT", ("a test",))
    assert runner.run([dies], tmp_path) == 0
    assert runner.run([dies, survives], tmp_path) == 1
    assert "SURVIVED  another spare" in capsys.readouterr().out
    assert runner.run([gone], tmp_path) == 2
    assert (tmp_path / "limits.txt").read_text() == "LIMIT = 3\nSPARE = 1\n"
