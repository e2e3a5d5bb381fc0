from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.rewrites.world import RewriteWorld, rewrite_world


@contextmanager
def own_jvm() -> Iterator[None]:
    """Start Spark in a JVM of its own: one that other tests have started cannot get the runtime of Iceberg."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    places = (
        (SparkContext, "_gateway"),
        (SparkContext, "_jvm"),
        (SparkContext, "_active_spark_context"),
        (SparkSession, "_instantiatedSession"),
    )
    others = [getattr(owner, name) for owner, name in places]
    for owner, name in places:
        setattr(owner, name, None)
    try:
        yield
    finally:
        if SparkContext._gateway is not None:
            SparkContext._gateway.shutdown()
        for (owner, name), value in zip(places, others, strict=True):
            setattr(owner, name, value)


@pytest.fixture(scope="package")
def world() -> Iterator[RewriteWorld]:
    with own_jvm(), rewrite_world() as rewriting:
        yield rewriting
