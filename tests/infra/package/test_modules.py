"""An author's modules in the packages for Lambda and Spark."""

from pathlib import Path

import pytest

from delegation.upkeep.policy_file import PACKAGED
from infra.package import build, trees, wheels
from infra.package.parts import LAMBDA, SPARK


@pytest.fixture
def author(tmp_path: Path) -> Path:
    """A folder with a package and a module."""
    author = tmp_path / "src"
    (author / "acme" / "__pycache__").mkdir(parents=True)
    (author / "acme" / "__init__.py").write_text("", encoding="utf-8")
    (author / "acme" / "__pycache__" / "x.pyc").write_text("", encoding="utf-8")
    (author / "reports.py").write_text("", encoding="utf-8")
    return author


def test_an_authors_package_and_module_are_in_the_bundles(author: Path, tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.mkdir()
    trees.add_modules(built, [author / "acme", author / "reports.py"])
    assert sorted(str(file.relative_to(built)) for file in built.rglob("*.py")) == ["acme/__init__.py", "reports.py"]
    assert not list(built.rglob("*.pyc"))
    with pytest.raises(FileExistsError, match="acme is already in the package"):
        trees.add_modules(built, [author / "acme"])


def test_both_packages_have_the_modules_and_what_they_need(
    author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def pip(command: str, *arguments: str) -> None:
        if command == "install":
            asked.append(arguments)
            target = Path(arguments[arguments.index("--target") + 1])
            is_added = "--no-index" not in arguments
            (target / ("acme_client.py" if is_added else "httpx.py")).touch()
            (target / "cffi").mkdir()
            (target / "cffi" / ("of_acme.py" if is_added else "unused.py")).touch()
            (target / "bin").mkdir()

    monkeypatch.setattr(wheels, "pip", pip)
    monkeypatch.setattr(wheels, "absent", lambda _part, _folder: [])
    monkeypatch.setattr(build, "find_python", lambda _named: None)
    output = tmp_path / "out"
    arguments = ["--output", str(output), "--archives", str(tmp_path / "dist"), "--module", str(author / "acme")]
    policies = tmp_path / "p.json"
    policies.write_text('{"format": 1, "policies": []}', encoding="utf-8")
    more = ["--requirement", "acme-client==2.1", "--policy-file", str(policies)]
    assert build.main([*arguments, *more]) == 0
    for part in (LAMBDA, SPARK):
        present = {"acme/__init__.py", "acme_client.py", "httpx.py", "delegation/__init__.py", "LICENSE", "NOTICE"}
        # A Spark job looks at the policy that asked for its expiry, too.
        present.add(PACKAGED)
        # The service uses no cffi, so its own copy is left out; what an author asks for is not.
        present |= {"cffi/of_acme.py"}
        found = {str(file.relative_to(output / part)) for file in (output / part).rglob("*")}
        assert present <= found
        assert found & {"cffi/unused.py", "bin"} == set()
    assert ["acme-client==2.1" in one for one in asked] == [False, True] * 2
    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == [
        "delegation-functions-arm64.zip",
        "delegation-spark-arm64.tgz",
    ]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("", "without __init__.py"), ("missing.py", "neither"), ("notes.txt", "neither"), ("delegation.py", "replace")],
)
def test_a_path_that_is_no_module_is_refused_before_anything_is_built(
    author: Path, capsys: pytest.CaptureFixture[str], path: str, reason: str
) -> None:
    for name in ("notes.txt", "delegation.py"):
        (author / name).write_text("", encoding="utf-8")
    with pytest.raises(SystemExit):
        build.main(["--module", str(author / path)])
    assert reason in capsys.readouterr().err
