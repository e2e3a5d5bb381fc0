"""What the two packages are built for: their names, the Python and the processors of the cloud, and their limits."""

from enum import StrEnum
from typing import Final

PYTHON_VERSION: Final = "3.13"
"""The newest Python that EMR Serverless' Spark 4 images have; Lambda runs the same version."""
LAMBDA: Final = "lambda"
SPARK: Final = "spark"
"""The names of the two packages, which are directories below the output."""
ARCHIVES: Final = {LAMBDA: "functions.zip", SPARK: "spark.tgz"}
"""What is deployed of each package: the directory's content in one file next to it.

An asset's key keeps only the last extension of its name, and Spark unpacks `.tgz` and `.tar.gz`, but not `.gz`.
"""
DESCRIPTION: Final = "package.json"
"""The file of the output that states what it was built for."""
ROOTS: Final = ("delegation", "polaris_common")
"""The import roots below functions/ that are deployed."""
NOT_DEPLOYED: Final = (
    "cli",
    "tasks/stores/persistence.py",
    "tasks/stores/persistence_entities.py",
    "tasks/stores/persistence_records.py",
    "testing",
)
"""Packages and modules of `delegation` that no Lambda function and no Spark job imports, as paths."""
LIMIT_BYTES: Final = 250 * 1024 * 1024
"""The largest unzipped deployment package (AWS Lambda developer guide, "Lambda quotas")."""
GOAL_BYTES: Final = {LAMBDA: 20_000_000, SPARK: 20_000_000}
"""The sizes of the archives that cold starts and jobs are meant to load."""


class Processor(StrEnum):
    """The processor that functions and Spark jobs run on, by Lambda's name."""

    ARM64 = "arm64"
    X86_64 = "x86_64"

    @property
    def machine(self) -> str:
        """The name in the tags of wheels."""
        return "aarch64" if self is Processor.ARM64 else "x86_64"

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms whose wheels Amazon Linux 2023 (glibc 2.34) loads; both services run on it."""
        return (
            *(f"manylinux_2_{minor}_{self.machine}" for minor in (34, 28, 17)),
            f"manylinux2014_{self.machine}",
        )
