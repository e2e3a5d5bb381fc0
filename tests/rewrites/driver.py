"""A rewrite in a process of its own, which a test kills: python -m tests.rewrites.driver URL TABLE ATTEMPT MASTER."""

import sys
from types import SimpleNamespace
from typing import Any

from delegation.rewrites.context import DataFilesRewrite
from delegation.rewrites.fence import Fence
from delegation.timestamps import utc_now
from tests.rewrites.world import PlainAttempt, RewriteWorld, spark_settings
from tests.spark_sessions import spark_session

BEGUN = "begun"
REWRITE = DataFilesRewrite(
    options={"min-input-files": "2", "partial-progress.max-commits": "2", "max-concurrent-file-group-rewrites": "1"}
)


def main(url: str, name: str, attempt: str, master: str) -> None:
    stack: Any = SimpleNamespace(catalog=SimpleNamespace(url=url), clock=utc_now)
    settings = {**spark_settings(stack), "spark.executor.memory": "512m"}
    with spark_session(master, environment=None, **settings) as session, Fence() as fence:
        session.sparkContext.setLogLevel("OFF")
        session.range(1).count()
        sys.stdout.write(f"{BEGUN}\n")
        sys.stdout.flush()
        result = RewriteWorld(stack, session, fence).run(name, PlainAttempt(attempt=int(attempt)), REWRITE)
        sys.stdout.write(f"{result.status} {result.files_rewritten}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
