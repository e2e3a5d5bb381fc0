"""Entry point of a Spark job that runs maintenance of the NoSQL persistence once (docs/persistence.md, On Spark).

It has the two tables' names as arguments and the credentials of its role; it prints the report as JSON.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from pyspark.sql import SparkSession

from polaris_persistence.catalogs.executors import DynamoDbStores
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.maintenance.spark import SparkSweep


def main(arguments: Sequence[str]) -> int:
    """Run maintenance once; an error is raised, so that the job fails. The exit code is 1 if a realm refused."""
    options = _parser().parse_args(arguments)
    stores = DynamoDbStores(options.objects_table, options.references_table, options.endpoint)
    policy = SweepPolicy(grace=options.grace, segments=options.segments, lost_after=options.lost_after)
    # Speculation is safe, but a scan done twice at once doubles the load on the table.
    session = SparkSession.builder.config("spark.speculation", "false").getOrCreate()
    try:
        report = SparkSweep(session, stores, policy).run()
    finally:
        session.stop()
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.refused else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Delete the objects that no commit needs, in one run.")
    parser.add_argument("--objects-table", required=True)
    parser.add_argument("--references-table", required=True)
    parser.add_argument("--endpoint", help="the URL of DynamoDB (default: that of the AWS environment)")
    parser.add_argument("--grace", type=float, default=86_400.0, help="the grace period in seconds (%(default)s)")
    parser.add_argument("--segments", type=int, default=1, help="number of scan segments; at least one per core")
    parser.add_argument("--lost-after", type=float, default=21_600.0, help="seconds until a run is presumed lost")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
