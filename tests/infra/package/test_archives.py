"""The same content gives the same archive, wherever it was written; bytecode holds neither time nor path."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from infra.package import build, parts
from infra.package.build import NotCompiled, compile_tree, find_python, remove_sources
from infra.package.parts import Processor
from infra.package.trees import remove_symbols, write_tar, write_zip

SOURCES = {"b/__init__.py": "KNOWN = {'x', 'y', 'z'}\n", "a.py": "import b\n", "b/data.json": "{}"}


def tree(folder: Path, when: int, order: Callable[[dict[str, str]], object] = list) -> Path:
    for name in order(SOURCES):  # type: ignore[attr-defined]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCES[name])
        os.utime(path, (when, when))
        path.chmod(0o600 if when else 0o755)
    return folder


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_an_archive_depends_on_the_content_alone(tmp_path: Path, write: Callable[[Path, Path], None]) -> None:
    written = []
    for name, when in (("one", 0), ("two", 1_700_000_000)):
        made = tree(tmp_path / name / "tree", when, list if when else lambda names: reversed([*names]))
        compile_tree(made, sys.executable)
        write(made, tmp_path / name / "archive")
        written.append((tmp_path / name / "archive").read_bytes())
    assert written[0] == written[1]


def test_entries_are_sorted(tmp_path: Path) -> None:
    made = tree(tmp_path / "tree", 0)
    write_zip(made, tmp_path / "zip")
    write_tar(made, tmp_path / "tar")
    assert zipfile.ZipFile(tmp_path / "zip").namelist() == sorted(SOURCES)
    with tarfile.open(tmp_path / "tar") as file:
        assert file.getnames() == sorted(SOURCES)


def test_bytecode_is_loaded_whatever_its_source_has_become(tmp_path: Path) -> None:
    made = tree(tmp_path / "tree", 0)
    compile_tree(made, sys.executable)
    [compiled] = (made / "__pycache__").glob("a.*.pyc")
    # PEP 552: the flags after the magic number; 1 is hash-based, 2 would demand a comparison with the source.
    assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 1
    assert str(tmp_path).encode() not in compiled.read_bytes()


def test_dependencies_are_imported_from_bytecode_alone(tmp_path: Path) -> None:
    sources = {
        "acme/__init__.py": "from acme.deep import answer\n",
        "acme/deep/__init__.py": "from single import answer\n",
        "single.py": "answer = 42\n",
        "delegation/__init__.py": "from acme import answer\n",
        "reader/__init__.py": "import inspect, reader\nfrom delegation import answer\n",
        "reader/own.py": "import inspect, reader\ntext = inspect.getsource(reader)\n",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    compile_tree(tmp_path, sys.executable)
    remove_sources(tmp_path, {"delegation"})
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")}
    assert left == {"delegation/__init__.py", "reader/__init__.py", "reader/own.py"}
    code = "import reader.own; print(reader.answer, reader.own.text.count('import'))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "42 2\n", done.stderr


def test_a_module_that_is_no_python_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("def\n")
    with pytest.raises(NotCompiled, match=r"wrong\.py"):
        compile_tree(tmp_path, sys.executable)


def test_another_version_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function would ignore its bytecode, and the package would only be larger."""
    monkeypatch.setattr(parts, "PYTHON_VERSION", "3.99")
    assert find_python(sys.executable) is None
    assert find_python(str(tmp_path / "absent")) is None
    monkeypatch.setattr(parts, "PYTHON_VERSION", f"{sys.version_info.major}.{sys.version_info.minor}")
    assert find_python(sys.executable) == sys.executable


def test_compiled_modules_are_smaller_without_symbols_and_load_as_before(tmp_path: Path) -> None:
    [library] = Path(zstandard.__file__).parent.glob("backend_c.*.so")
    shutil.copytree(Path(zstandard.__file__).parent, tmp_path / "zstandard")
    (tmp_path / "other.so").write_bytes(b"no library")
    remove_symbols(tmp_path)
    made = tmp_path / "zstandard" / library.name
    assert len(zlib.compress(made.read_bytes())) < len(zlib.compress(library.read_bytes())) / 2
    assert (tmp_path / "other.so").read_bytes() == b"no library"
    code = "import zstandard as z; print(z.__file__, z.decompress(z.compress(b'files' * 99)) == b'files' * 99)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(tmp_path / "zstandard" / "__init__.py"), "True"]


@pytest.mark.parametrize("size", [900, 1_100])
def test_an_archive_above_its_goal_is_named(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "GOAL_BYTES", {"lambda": 1_000, "spark": 10_000})
    for name in ("functions.zip", "spark.tgz"):
        (tmp_path / name).write_bytes(bytes(size))
    found = build.publish(tmp_path, tmp_path / "dist", Processor.ARM64)
    assert [one.partition(" ")[0] for one in found] == (["functions.zip"] if size > 1_000 else [])
