"""The packages as they are built, for both processors: they are the same each time, and their handlers import alone."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.environment.context import ROOT
from infra.environment.functions import EVERY_FUNCTION
from infra.package import build
from infra.package.build import find_python
from infra.package.parts import ARCHIVES, LAMBDA, SPARK, Processor
from infra.package.trees import AWS_SERVICES
from infra.package.wheels import digest
from tests.infra.conftest import TEMPLATES_ALONE
from tests.infra.package.test_spark_archive import spark_parameters
from tests.infra.test_settings import REAL
from tests.integration.local.test_emr import Emr

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
PROBE = ROOT / "tests" / "integration" / "local" / "fixtures" / "spark_package.py"
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


class Assembly(Emr):
    """The local EMR, whose jobs download what `cdk deploy` would have uploaded, by its keys."""

    def __init__(self, folder: Path, assembly: Path) -> None:
        self.files: dict[str, Path] = {}
        for manifest in assembly.glob("*.assets.json"):
            for asset in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
                for destination in asset["destinations"].values():
                    self.files[destination["objectKey"]] = assembly / asset["source"]["path"]
        super().__init__(folder, python=find_python())

    def _download(self, bucket: str, key: str, target: Path) -> None:
        shutil.copyfile(self.files[key], target)


@pytest.mark.spark
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the libraries of the package are for x86_64")
@pytest.mark.skipif(find_python() is None, reason="the package is for Python 3.13, which is not installed")
def test_a_real_spark_runs_jobs_from_the_synthesised_archive_below_its_key(
    node: str, x86_64: Path, tmp_path: Path
) -> None:
    """Driver and executors import the service from the archive; the job of a purge imports all that it needs."""
    from infra.stacks.build import build as synthesise

    context = {"delegation:package": str(x86_64), "delegation:architecture": "x86_64"}
    synthesise({**TEMPLATES_ALONE, **REAL, **context}, outdir=str(tmp_path / "cdk.out")).app.synth()
    parameters = spark_parameters(tmp_path / "cdk.out")
    [entry_point] = [key for key in Assembly(tmp_path / "none", tmp_path / "cdk.out").files if key.endswith(".py")]
    # The settings of the code and of Java alone: the others name resources of AWS.
    code = " ".join(
        re.findall(r"--conf spark\.(?:archives|\S+\.PYTHONPATH|\S*PYSPARK_\w+|\S+\.extraJavaOptions)=\S+", parameters)
    )
    emr = Assembly(tmp_path, tmp_path / "cdk.out")
    try:
        run = emr.start("probe", parameters=code, entry_point=str(PROBE))
        emr.until(run, "SUCCESS")
        seen = json.loads(emr.stdout(run))
        unpacked = tmp_path / "emr" / run / "work" / "package" / "delegation" / "__init__.py"
        assert seen == {"driver": str(unpacked), "executors": [str(unpacked)], "python": [3, 13]}
        helped = emr.start("purge", "--help", parameters=code, entry_point=f"s3://assets/{entry_point}")
        emr.until(helped, "SUCCESS")
        assert "--task-id" in emr.stdout(helped)
    finally:
        emr.close()
