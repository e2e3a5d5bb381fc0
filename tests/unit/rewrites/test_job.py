"""The session of a Spark job: where its executors reach the fence, and what its conf has."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delegation.rewrites import job
from delegation.rewrites.behavior import RewriteJob, RewritePlan
from delegation.rewrites.fence import LOOPBACK
from delegation.rewrites.spark import SparkRewriter


@dataclass
class Conf:
    values: dict[str, str]

    def get(self, name: str, default: str) -> str:
        return self.values.get(name, default)


@pytest.mark.parametrize(
    ("master", "conf", "host"),
    [
        ("local[2]", {"spark.driver.host": "127.0.0.2"}, LOOPBACK),
        ("spark://elsewhere:7077", {"spark.driver.host": "127.0.0.2"}, "127.0.0.2"),
        (None, {"spark.driver.host": "127.0.0.2"}, "127.0.0.2"),
    ],
)
def test_executors_reach_the_fence_of_a_job_where_they_reach_its_driver(
    monkeypatch: pytest.MonkeyPatch, master: str | None, conf: dict[str, str], host: str
) -> None:
    context = SimpleNamespace(master=master, getConf=lambda: Conf(conf))

    @contextmanager
    def session() -> Iterator[Any]:
        yield SimpleNamespace(sparkContext=context)

    monkeypatch.setattr(job, "rewriting_session", session)
    monkeypatch.setattr(job, "run_rewrites", lambda _ctx, _rewrites, engine, _again: engine)
    work = RewriteJob(cast("Any", None), RewritePlan(rewrites=(), summary=""), tuple)
    engine: Any = job.rewrite_in_session(work, None)
    assert isinstance(engine, SparkRewriter)
    assert engine.fence.server_address[0] == host
