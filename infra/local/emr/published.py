"""The code of the local stack's Spark jobs: deployed to S3 below the keys that the CDK gives assets."""

import hashlib
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.environment.context import ROOT
from infra.package.archives import write_tar
from infra.package.parts import ARCHIVES, SPARK
from infra.package.trees import add_sources

ENTRY_POINT: Final = ROOT / "spark" / "purge_table.py"


@dataclass(frozen=True, slots=True)
class PublishedCode:
    """The URLs of the jobs' main file and of their archive, which has the service's sources alone."""

    entry_point: str
    archive: str


def publish(s3: Any, bucket: str) -> PublishedCode:
    """Upload the entry point and an archive of the sources; raises botocore's errors."""
    with tempfile.TemporaryDirectory() as folder:
        tree, archive = Path(folder) / SPARK, Path(folder) / ARCHIVES[SPARK]
        tree.mkdir()
        add_sources(tree)
        write_tar(tree, archive)
        return PublishedCode(*(_upload(s3, bucket, path) for path in (ENTRY_POINT, archive)))


def asset_key(path: Path) -> str:
    """Return the key of a file's asset: its hash and the *last* extension of its name (aws-cdk-lib, `AssetStaging`)."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}{path.suffix}"


def installed_libraries() -> tuple[str, ...]:
    """Return the directories of the libraries that a package has and an archive of sources lacks."""
    return tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))


def _upload(s3: Any, bucket: str, path: Path) -> str:
    key = asset_key(path)
    s3.upload_file(str(path), bucket, key)
    return f"s3://{bucket}/{key}"
