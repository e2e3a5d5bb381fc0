"""The assets with the code and its dependencies for Lambda functions and Spark jobs."""

from typing import Final

from aws_cdk import Annotations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.environment import ROOT
from infra.package import LAMBDA, NOT_DEPLOYED, SPARK
from infra.settings import NO_PACKAGE

ENTRY_POINT: Final = ROOT / "spark" / "purge_table.py"
_EXCLUDED: Final = ("**/__pycache__", "**/*.pyc", "*.egg-info", *(f"delegation/{name}" for name in NOT_DEPLOYED))


class Code(Construct):
    """`functions` is the functions' code; `archive` and `entry_point` (the main file) are the Spark jobs'.

    `package` is the output of `python -m infra.package`, with `delegation/` next to its dependencies. With `none` the
    assets contain the sources alone, which is enough for templates and tests; synthesis warns.
    Raises FileNotFoundError if `package` does not exist.
    """

    def __init__(self, scope: Construct, construct_id: str, *, package: str) -> None:
        super().__init__(scope, construct_id)
        if package == NO_PACKAGE:
            Annotations.of(self).add_warning_v2(
                "delegation:no-package",
                "These templates must not be deployed: with delegation:package=none every function lacks its "
                "dependencies and cannot be imported.",
            )
        excluded = list(_EXCLUDED)
        self.functions = lambda_.Code.from_asset(_directory(package, LAMBDA), exclude=excluded)
        self.archive = assets.Asset(self, "Archive", path=_directory(package, SPARK), exclude=excluded)
        self.entry_point = assets.Asset(self, "EntryPoint", path=str(ENTRY_POINT))


def _directory(package: str, part: str) -> str:
    directory = ROOT / "functions" if package == NO_PACKAGE else ROOT / package / part
    if not (directory / "delegation").is_dir():
        raise FileNotFoundError(
            f"{directory} has no folder `delegation`: build the package with `python -m infra.package`, name "
            "another with -c delegation:package=FOLDER, or synthesize templates alone with -c delegation:package=none"
        )
    return str(directory)
