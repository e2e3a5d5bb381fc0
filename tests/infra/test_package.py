"""The package of code and dependencies, as far as it needs no package index."""

from itertools import pairwise
from pathlib import Path

import pytest

from infra.package import LAMBDA, SPARK, add_sources, dependencies, pip_arguments


def test_wheels_are_chosen_for_the_cloud_and_pinned(tmp_path: Path) -> None:
    arguments = pip_arguments(["httpx>=0.28"], tmp_path)
    pairs = list(pairwise(arguments))
    assert ("--only-binary", ":all:") in pairs
    assert ("--platform", "manylinux2014_x86_64") in pairs
    assert ("--target", str(tmp_path)) in pairs
    assert Path(arguments[arguments.index("--constraint") + 1]).is_file()
    assert arguments[-1] == "httpx>=0.28"


def test_the_cloud_gets_what_runs_there_and_no_tools() -> None:
    names = {part: {one.split(">")[0] for one in dependencies(part)} for part in (LAMBDA, SPARK)}
    assert {"boto3", "pydantic", "httpx"} <= names[LAMBDA]
    assert names[SPARK] - names[LAMBDA] == {"pandas", "pyarrow"}
    assert not {"pyspark", "moto", "aws-cdk-lib", "typer"} & names[SPARK]


def test_sources_stand_beside_their_dependencies(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    add_sources(tmp_path)
    assert (tmp_path / "delegation" / "handlers" / "purge.asl.json").is_file()
    assert not list(tmp_path.rglob("__pycache__"))
    assert not (tmp_path / "bin").exists()


def test_a_package_that_was_named_and_is_not_there_is_refused(node: str, tmp_path: Path) -> None:
    from infra.stacks.build import build

    with pytest.raises((FileNotFoundError, RuntimeError), match=r"infra\.package"):
        build({"delegation:package": str(tmp_path)}, outdir=str(tmp_path / "cdk.out"))
