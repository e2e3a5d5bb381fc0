"""The assets with the code and its dependencies for Lambda functions and Spark jobs."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aws_cdk import Annotations, Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.constructs.security.grants import allow
from infra.environment.context import ROOT
from infra.package.parts import ARCHIVES, DESCRIPTION, LAMBDA, NOT_DEPLOYED, SPARK, Processor
from infra.settings import NO_PACKAGE

ENTRY_POINT: Final = ROOT / "spark" / "run_task.py"
_EXCLUDED: Final = (
    *("**/__pycache__", "**/*.pyc", "*.egg-info", "polaris_persistence"),
    *(f"delegation/{name}" for name in NOT_DEPLOYED),
)


class PackageForAnother(ValueError):
    """The package was built for another processor than the deployment's."""


class Code(Construct):
    """`functions` is the functions' code; `archive` and `entry_point` (the main file) are the Spark jobs'.

    `package` is the output of `python -m infra.package`, whose archives are deployed as they are. With `none` the
    assets contain the sources alone, which is enough for templates and tests; synthesis warns. `behaviors` must be in
    the package. Raises FileNotFoundError if `package`, or a behavior's module in it, does not exist, and
    PackageForAnother if it was not built for `processor`.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        package: str,
        processor: Processor,
        behaviors: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, construct_id)
        if package == NO_PACKAGE:
            Annotations.of(self).add_warning_v2(
                "delegation:no-package",
                "These templates must not be deployed: with delegation:package=none every function lacks its "
                "dependencies and cannot be imported.",
            )
        else:
            _require_behaviors(package, behaviors)
            _require_processor(package, processor)
        excluded = list(_EXCLUDED) if package == NO_PACKAGE else None
        self.functions = lambda_.Code.from_asset(_source(package, LAMBDA), exclude=excluded)
        self.archive = assets.Asset(self, "Archive", path=_source(package, SPARK), exclude=excluded)
        self.entry_point = assets.Asset(self, "EntryPoint", path=str(ENTRY_POINT))


def stored_object(scope: Construct, variables: Mapping[str, str]) -> assets.Asset:
    """Return the settings for which functions have no room, as an object in the bucket that `cdk bootstrap` made.

    Its URL changes with its content, and so do the functions that read it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.json"
        path.write_text(json.dumps(variables, sort_keys=True), encoding="utf-8")
        return assets.Asset(Construct(scope, "Settings"), "Object", path=str(path))


def reading(*objects: assets.Asset, key_arn: str | None) -> list[iam.PolicyStatement]:
    """Allow reading objects of the bootstrap bucket, and its key if it has a customer managed one."""
    read = allow(["s3:GetObject"], *[location.bucket.arn_for_objects(location.s3_object_key) for location in objects])
    if key_arn is None:
        return [read]
    through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{Aws.REGION}.amazonaws.com"}}
    return [read, iam.PolicyStatement(actions=["kms:Decrypt"], resources=[key_arn], conditions=through_s3)]


def _require_behaviors(package: str, behaviors: Sequence[str]) -> None:
    """Raise FileNotFoundError for a behavior's module that functions or Spark jobs could not import."""
    for name in behaviors:
        module = name.partition(":")[0].replace(".", "/")
        for part in (LAMBDA, SPARK):
            folder = ROOT / package / part
            if not (folder / f"{module}.py").is_file() and not (folder / module / "__init__.py").is_file():
                raise FileNotFoundError(
                    f"{folder} has no module {module.replace('/', '.')}, which delegation:behaviors names. Build the "
                    "package with `python -m infra.package --module PATH`"
                )


def _require_processor(package: str, processor: Processor) -> None:
    """Raise PackageForAnother for a package whose libraries the functions and jobs could not load."""
    described = ROOT / package / DESCRIPTION
    built_for = json.loads(_existing(described).read_text(encoding="utf-8"))["architecture"]
    if built_for != processor:
        raise PackageForAnother(
            f"the package {described.parent} is for {built_for}, but delegation:architecture is {processor}. Build it "
            f"with `python -m infra.package --architecture {processor}`, or deploy with -c "
            f"delegation:architecture={built_for}"
        )


def _source(package: str, part: str) -> str:
    """Return what an asset is made of: the sources' directory, or a package's archive."""
    return str(_existing(ROOT / "functions" if package == NO_PACKAGE else ROOT / package / ARCHIVES[part]))


def _existing(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist. Build the package with `python -m infra.package`, name another with "
            "-c delegation:package=FOLDER, or synthesize only templates with -c delegation:package=none"
        )
    return path
