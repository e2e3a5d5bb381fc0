"""The packages as they are built, for both processors: they are the same each time, and their handlers import alone."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from infra.environment.context import ROOT
from infra.environment.functions import EVERY_FUNCTION
from infra.package import build
from infra.package.bytecode import find_python
from infra.package.parts import ARCHIVES, LAMBDA, SPARK, Processor
from infra.package.trees import AWS_SERVICES
from infra.package.wheels import digest

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
WHEELS = Path(os.environ.get("DELEGATION_WHEELS", ROOT / "build" / "wheels"))


def built(folder: Path, processor: Processor) -> Path:
    arguments = ["--output", str(folder / "package"), "--archives", str(folder / "dist"), "--wheels", str(WHEELS)]
    assert build.main([*arguments, "--architecture", processor]) == 0
    return folder / "package"


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("arm64"), Processor.ARM64)


@pytest.fixture(scope="module")
def x86_64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("x86_64"), Processor.X86_64)


def test_the_same_inputs_give_the_same_bytes(arm64: Path, tmp_path: Path) -> None:
    again = built(tmp_path, Processor.ARM64)
    assert [digest(again / name) for name in ARCHIVES.values()] == [digest(arm64 / name) for name in ARCHIVES.values()]


@pytest.mark.parametrize("part", [LAMBDA, SPARK])
def test_wheels_are_of_the_processor_or_of_any(arm64: Path, part: str) -> None:
    described = list((arm64 / part).glob("*.dist-info/WHEEL"))
    tags = {line.split()[1] for one in described for line in one.read_text().splitlines() if line.startswith("Tag:")}
    assert len(described) > 20
    assert {tag for tag in tags if not tag.endswith(("_aarch64", "-any"))} == set()
    libraries = list((arm64 / part).rglob("*.so"))
    # ELF, e_machine at offset 18: 183 is AArch64.
    assert {int.from_bytes(one.read_bytes()[18:20], "little") for one in libraries} == {183}


def test_a_package_has_the_data_of_the_services_that_are_called(arm64: Path) -> None:
    data = arm64 / LAMBDA / "botocore" / "data"
    assert {path.name for path in data.iterdir() if path.is_dir()} == AWS_SERVICES


@pytest.mark.parametrize("name", EVERY_FUNCTION)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the libraries of the package are for x86_64")
@pytest.mark.skipif(find_python() is None, reason="the package is for Python 3.13, which is not installed")
def test_each_handler_imports_from_the_package_alone(x86_64: Path, name: str) -> None:
    code = f"""
import sys, {EVERY_FUNCTION[name].module}
print(*{{one.__file__ for one in list(sys.modules.values()) if getattr(one, '__file__', None)}}, sep="\\n")
"""
    env = {"PYTHONPATH": str(x86_64 / LAMBDA), "AWS_DEFAULT_REGION": "us-east-1"}
    command = [find_python() or sys.executable, "-S", "-B", "-c", code]
    done = subprocess.run(command, env=env, cwd=x86_64, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not [one for one in done.stdout.split() if "site-packages" in one]
    assert any(one.startswith(str(x86_64)) for one in done.stdout.split())
