"""The archive of the Spark jobs as it is synthesised: Spark unpacks it if the end of its S3 key says that it can."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from infra.environment.functions import FUNCTIONS
from infra.local.emr.spark_jobs import Unpacking, unpacking
from infra.package.parts import ARCHIVES, DESCRIPTION, LAMBDA, SPARK
from infra.package.trees import write_tar, write_zip
from tests.infra.conftest import TEMPLATES_ALONE
from tests.infra.test_settings import REAL


@pytest.fixture(scope="module")
def small_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `python -m infra.package` writes, with one module instead of all."""
    package = tmp_path_factory.mktemp("package")
    for part, write in ((LAMBDA, write_zip), (SPARK, write_tar)):
        (package / part).mkdir()
        (package / part / "one_module.py").write_text("VALUE = 1\n", encoding="utf-8")
        write(package / part, package / ARCHIVES[part])
    (package / DESCRIPTION).write_text(json.dumps({"architecture": "arm64"}), encoding="utf-8")
    return package


@pytest.fixture(scope="module")
def assembly(node: str, small_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from infra.stacks.build import build

    outdir = tmp_path_factory.mktemp("cdk.out")
    build({**TEMPLATES_ALONE, **REAL, "delegation:package": str(small_package)}, outdir=str(outdir)).app.synth()
    return outdir


def spark_parameters(assembly: Path) -> str:
    """Return `sparkSubmitParameters` of the jobs of the synthesised service, with unresolved names of resources."""
    [template] = [path for path in assembly.glob("*.template.json") if "EMRServerless" in path.read_text()]
    resources: dict[str, Any] = json.loads(template.read_text(encoding="utf-8"))["Resources"]
    [starter] = [
        one["Properties"]
        for one in resources.values()
        if one["Type"] == "AWS::Lambda::Function" and one["Properties"]["Handler"] == FUNCTIONS["start_job"].handler
    ]
    [_, parts] = starter["Environment"]["Variables"]["DELEGATION_EMR_SPARK_PARAMETERS"]["Fn::Join"]
    return "".join(part if isinstance(part, str) else str(part.get("Fn::Sub")) for part in parts)


def archive_key(assembly: Path) -> str:
    """Return the key of the archive that the jobs of the synthesised service unpack."""
    [key] = re.findall(r"spark\.archives=s3://[^/]+/(\S+)#package ", spark_parameters(assembly))
    return str(key)


def test_the_synthesised_key_of_the_archive_ends_as_spark_unpacks_it(assembly: Path) -> None:
    key = archive_key(assembly)
    assert key.endswith(".tgz")
    assert unpacking(key) is Unpacking.TAR


def test_the_asset_below_that_key_is_the_archive_itself(assembly: Path) -> None:
    key = archive_key(assembly)
    [manifest] = [path for path in assembly.glob("*.assets.json") if key in path.read_text(encoding="utf-8")]
    files = json.loads(manifest.read_text(encoding="utf-8"))["files"].values()
    [source] = [one["source"] for one in files if key in {each["objectKey"] for each in one["destinations"].values()}]
    assert source["packaging"] == "file"
    with tarfile.open(assembly / source["path"]) as opened:
        assert opened.getnames() == ["one_module.py"]
