"""Real Spark on this machine, one session at a time."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.paths import ROOT


@contextmanager
def spark_session(
    master: str = "local[2]", *, environment: Mapping[str, str] | None = None, **settings: str
) -> Iterator[Any]:
    """A session whose workers find this repository's code; `environment` is theirs, too.

    The JVM outlives it, for the next one in this process: nothing may depend on the variables it was started with.
    """
    import pyspark
    from pyspark.sql import SparkSession

    path = os.pathsep.join([str(ROOT / "functions"), str(ROOT)])
    builder = SparkSession.builder.master(master)
    for name, value in {**(environment or {}), "PYTHONPATH": path}.items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    fixed = {
        "spark.ui.enabled": "false",
        "spark.speculation": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Over TCP each task waits 40 ms for an acknowledgement that is delayed.
        "spark.python.unix.domain.socket.enabled": "true",
        # Tests end before the optimizing compiler pays.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    for name, value in {**fixed, **settings}.items():
        builder = builder.config(name, value)
    with mock.patch.dict(os.environ, {"PYSPARK_PYTHON": sys.executable}):
        session = builder.getOrCreate()
        # What executors of a local cluster leave behind.
        home = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent))
        left = home / "work" / session.sparkContext.applicationId
        try:
            yield session
        finally:
            session.stop()
            shutil.rmtree(left, ignore_errors=True)
