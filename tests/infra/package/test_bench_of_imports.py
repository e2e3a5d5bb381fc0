"""The bench of cold starts finds the package that this machine can import, and measures every handler."""

import json
from pathlib import Path

import pytest

from infra.environment.functions import EVERY_FUNCTION
from infra.package.parts import DESCRIPTION, Processor
from tests.bench import bench_cold


def package(folder: Path, processor: Processor) -> Path:
    folder.mkdir()
    (folder / DESCRIPTION).write_text(json.dumps({"architecture": processor}))
    return folder


@pytest.fixture
def on_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_cold.platform, "machine", lambda: "x86_64")


@pytest.mark.usefixtures("on_x86")
def test_the_machines_own_package_is_measured_beside_that_of_another_processor(tmp_path: Path) -> None:
    package(tmp_path / "package", Processor.ARM64)
    with pytest.raises(SystemExit, match=r"`make package ARGS=.--architecture x86_64 --output build/package-x86_64.`"):
        bench_cold.package_of_this_machine(tmp_path)
    own = package(tmp_path / "package-x86_64", Processor.X86_64)
    assert bench_cold.package_of_this_machine(tmp_path) == own


@pytest.mark.usefixtures("on_x86")
def test_the_default_package_is_measured_where_it_is_for_this_machine(tmp_path: Path) -> None:
    own = package(tmp_path / "package", Processor.X86_64)
    assert bench_cold.package_of_this_machine(tmp_path) == own


@pytest.mark.parametrize("name", EVERY_FUNCTION)
def test_every_handler_is_a_module_of_the_sources(name: str) -> None:
    assert Path("functions", *EVERY_FUNCTION[name].module.split(".")).with_suffix(".py").is_file()
