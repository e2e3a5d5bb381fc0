"""The packages of code and dependencies, as far as building them needs no package index."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from grimp import ImportGraph, build_graph

from infra.environment.context import ROOT
from infra.environment.functions import FUNCTIONS
from infra.package import description
from infra.package.parts import NOT_DEPLOYED, ROOTS, Processor
from infra.package.trees import add_licences, add_sources, remove_notes, remove_unused
from infra.package.wheels import requirements, selection
from tests.infra.test_settings import REAL


@pytest.fixture(scope="module")
def imports() -> ImportGraph:
    return build_graph("delegation", cache_dir=None)


def test_wheels_are_chosen_for_the_cloud() -> None:
    pairs = list(pairwise(selection(Processor.ARM64)))
    assert ("--only-binary", ":all:") in pairs
    assert ("--python-version", "3.13") in pairs
    assert ("--platform", "manylinux2014_aarch64") in pairs
    assert not [one for one in selection(Processor.ARM64) if "x86" in one]
    assert ("--platform", "manylinux2014_x86_64") in list(pairwise(selection(Processor.X86_64)))


def test_a_package_has_the_dependencies_of_its_service_and_no_tools() -> None:
    names = {one.split(">")[0] for one in requirements()}
    assert {"boto3", "pydantic", "httpx"} <= names
    assert not {"pyspark", "pandas", "pyarrow", "moto", "aws-cdk-lib", "typer"} & names


def test_sources_are_copied_without_caches(tmp_path: Path) -> None:
    add_sources(tmp_path)
    assert (tmp_path / "delegation" / "handlers" / "purge.asl.json").is_file()
    built = tmp_path / "delegation" / "edge" / "api"
    assert {name: (built / name).read_text(encoding="utf-8") for name in description.files()} == description.files()
    assert not list(tmp_path.rglob("__pycache__"))


def test_what_no_function_uses_is_left_out(tmp_path: Path) -> None:
    kept = [
        "botocore/data/s3/x.json",
        "botocore/data/endpoints.json",
        "boto3/data/sqs/x.json",
        "zstandard/backend_c.so",
        *("tzdata/zoneinfo/Europe/Berlin", "cffi-2.dist-info/METADATA", "pydantic/v1/main.py"),
    ]
    left = [
        *("bin/x", "botocore/data/ec2/x.json", "zstandard/_cffi.cpython-313.so", "zstandard/backend_cffi.py"),
        *("a-1.dist-info/RECORD", "a-1.dist-info/INSTALLER"),
        "pycparser-3.dist-info/METADATA",
        *("pydantic_core/core.pyi", "cramjam/xz.pyi", "wrapt-stubs/__init__.pyi", "wrapt/_wrappers.c"),
        *("pydantic/mypy.py", "anyio/pytest_plugin.py", "tzdata/zoneinfo/tzdata.zi", "tzdata/zoneinfo/zone.tab"),
    ]
    for name in (*kept, *left):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    remove_unused(tmp_path)
    remove_notes(tmp_path)
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()) == sorted(kept)


def test_what_is_deployed_imports_nothing_that_is_removed() -> None:
    importing = [
        str(path)
        for root in ROOTS
        for path in (ROOT / "functions" / root).rglob("*.py")
        if re.search(r"^\s*(from|import) (cffi|pycparser)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert importing == []


def test_licences_and_notices_of_dependencies_are_in_the_package(tmp_path: Path) -> None:
    described = tmp_path / "acme_client-1.0.dist-info"
    (described / "licenses").mkdir(parents=True)
    (described / "METADATA").write_text("Name: acme-client\nVersion: 1.0\nLicense-Expression: MIT\n")
    (described / "licenses" / "LICENSE").touch()
    (described / "NOTICE").write_text("Made by Acme\n")
    add_licences(tmp_path)
    listed = (tmp_path / "LICENSES.txt").read_text()
    assert "acme-client 1.0: MIT (acme_client-1.0.dist-info/licenses/LICENSE)\n" in listed
    assert "---- acme_client-1.0 ----\n\nMade by Acme\n" in (tmp_path / "NOTICE").read_text()
    assert (tmp_path / "LICENSE").is_file()


def test_persistence_the_command_and_contracts_of_stores_are_in_no_package(tmp_path: Path) -> None:
    add_sources(tmp_path)
    stores = tuple(f"tasks/stores/persistence{part}.py" for part in ("", "_entities", "_records"))
    assert ("cli", *stores, "testing") == NOT_DEPLOYED
    assert not (tmp_path / "polaris_persistence").exists()
    assert not [name for name in NOT_DEPLOYED if (tmp_path / "delegation" / name).exists()]


def test_persistence_is_in_no_asset_made_of_the_sources(outdir: Path) -> None:
    assets = [path for path in outdir.glob("asset.*") if path.is_dir()]
    assert assets
    for asset in assets:
        assert (asset / "delegation" / "handlers" / "api.py").is_file()
        assert not [name for name in NOT_DEPLOYED if (asset / "delegation" / name).exists()]
        assert not (asset / "polaris_persistence").exists()


@pytest.mark.parametrize(
    "module",
    [
        *(function.module for function in FUNCTIONS.values()),
        "delegation.wiring.spark",
        "delegation.removal.purge.spark",
    ],
)
def test_nothing_that_runs_in_the_cloud_imports_persistence(module: str, imports: ImportGraph) -> None:
    """Read from the sources, so that an import inside a function counts too."""
    needed = imports.find_upstream_modules(module)
    assert needed
    left_out = (
        "polaris_persistence",
        *(f"delegation.{name.removesuffix('.py').replace('/', '.')}" for name in NOT_DEPLOYED),
    )
    assert not {one for one in needed if f"{one}.".startswith(tuple(f"{name}." for name in left_out))}


def test_every_handler_and_the_spark_job_import_from_the_packaged_sources(tmp_path: Path) -> None:
    add_sources(tmp_path)
    modules = [function.module for function in FUNCTIONS.values()]
    code = f"""
import importlib, runpy, sys
for name in {modules}:
    importlib.import_module(name)
runpy.run_path({str(ROOT / "spark" / "run_task.py")!r}, run_name="run_task")
print(*[module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "delegation"], sep="\\n")
"""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert len(files) > len(modules)
    assert all(Path(file).is_relative_to(tmp_path / "delegation") for file in files)


def test_a_package_that_does_not_exist_is_refused(node: str, tmp_path: Path) -> None:
    from infra.stacks.build import build

    with pytest.raises((FileNotFoundError, RuntimeError), match=r"infra\.package"):
        build({**REAL, "delegation:package": str(tmp_path)}, outdir=str(tmp_path / "cdk.out"))
