"""The two dashboards and the saved queries of `infra/operations`, for one stage."""

from collections.abc import Mapping, Sequence

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.naming import resource_name
from infra.operations import boards
from infra.operations.boards import BoardNames
from infra.operations.queries import QUERIES


class Dashboards(Construct):
    """`users` shows what users feel, `resources` what resources do; `queries` are the saved ones by name."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: str,
        names: BoardNames,
        log_groups: Sequence[logs.ILogGroup],
    ) -> None:
        """`log_groups` are those that the queries search."""
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self.users = self._board("Users", resource_name(stage, "users"), stack.to_json_string(boards.users(names)))
        self.resources = self._board(
            "Resources", resource_name(stage, "resources"), stack.to_json_string(boards.resources(names))
        )
        self.queries: Mapping[str, logs.CfnQueryDefinition] = {
            query.name: logs.CfnQueryDefinition(
                self,
                "Query" + query.name.title().replace(" ", ""),
                name=f"{resource_name(stage, 'queries')}/{query.name}",
                query_string=query.text,
                log_group_names=[group.log_group_name for group in log_groups],
            )
            for query in QUERIES
        }

    def _board(self, construct_id: str, name: str, body: str) -> cloudwatch.CfnDashboard:
        return cloudwatch.CfnDashboard(self, construct_id, dashboard_name=name, dashboard_body=body)
