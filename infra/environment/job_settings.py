"""The Spark settings that let a job import its code: they are the same in AWS and on one machine."""

from typing import Final

from infra.package.parts import PYTHON_VERSION

PYTHON: Final = f"/usr/bin/python{PYTHON_VERSION}"
"""The interpreter in EMR's image; without a name the driver would run the image's default, an older Python."""
_UNPACKED: Final = "package"
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1"
"""Python works on the rows and the JVM only passes them on: what its optimizing compiler takes, it never gives back."""


def packaged_job(archive_url: str) -> str:
    """Return `sparkSubmitParameters` of a job whose driver and executors import what an archive has.

    They unpack the archive; no task has a speculative copy. The URL must end as Spark unpacks archives: `.tgz`, `.zip`.
    """
    settings = {
        "spark.archives": f"{archive_url}#{_UNPACKED}",
        "spark.emr-serverless.driverEnv.PYTHONPATH": f"./{_UNPACKED}",
        "spark.executorEnv.PYTHONPATH": f"./{_UNPACKED}",
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": PYTHON,
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": PYTHON,
        "spark.executorEnv.PYSPARK_PYTHON": PYTHON,
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.speculation": "false",
    }
    return " ".join(f"--conf {name}={value}" for name, value in settings.items())
