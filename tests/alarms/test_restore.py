"""docs/runbook/restore.md, pasted as it is written into a shell whose `aws` and `delegation` reach moto's DynamoDB.

What moto cannot show: a restore to a moment of the past (its copy has what is there at the call), and the time that
DynamoDB needs. The items are damaged after the copy was made, which is the same for the rest of the page.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delegation.tasks.stores.base import Create
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.timestamps import utc_now
from infra.local import resources
from infra.local.aws.moto_app import MotoProcess
from infra.local.aws.server import REGION
from tests.alarms.shell import RunbookShell
from tests.contract.task_tables import dynamodb_client
from tests.infra.operations.runbook import FOLDER, blocks
from tests.kit.tasks.builders import submitted

STOP, TO_A_MOMENT, UNDER_ITS_NAME, COUNT, COPY, CANCEL, RESUME, DELETE = blocks(FOLDER / "restore.md")
KINDS = {"TablesTasks": resources.TASKS_TABLE, "TablesIdempotency": resources.IDEMPOTENCY_TABLE}


class RestoredTables:
    """moto's DynamoDB with the tables of a deployment and three tasks, and the shell of an operator."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.client = dynamodb_client(url)
        resources.create_tables(self.client)
        self.store = DynamoDbTaskStore(ConditionalTable(self.client), resources.TASKS_TABLE)
        now = utc_now()
        self.ids = []
        for _ in range(3):
            task = submitted(received_timestamp=now, last_status_change_ts=now, created_ts=now, due_at=now)
            self.store.apply(Create(task))
            self.ids.append(task.task_id)
        listed = [
            {
                "ResourceType": "AWS::DynamoDB::Table",
                "LogicalResourceId": f"{name}1234ABCD",
                "PhysicalResourceId": local,
            }
            for name, local in KINDS.items()
        ]
        self.shell = RunbookShell(folder, aws=url, dynamodb=url, logs="", listed=listed)

    def paste(self, *commands: str, **words: str) -> str:
        """Run blocks of the page in one shell, after those that are set up once; return what they print."""
        text = "\n".join(commands)
        for word, value in words.items():
            text = text.replace(word, value)
        env = {
            "HOME": str(self.folder),
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        done = self.shell.run(text, env)
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def heads(self) -> dict[str, str]:
        """The statuses of the tasks that are there, by id."""
        return {task.task_id: task.status.value for task in self.store.heads().tasks if task.task_id in self.ids}

    def described(self, table: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.describe_table(TableName=table)["Table"]
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RestoredTables]:
    moto = MotoProcess(log=tmp_path / "moto.log").start()
    try:
        yield RestoredTables(moto.url, tmp_path)
    finally:
        moto.stop()


@pytest.mark.long
def test_items_that_were_deleted_come_back_and_nothing_runs_before_it_is_resumed(site: RestoredTables) -> None:
    site.paste(STOP, TO_A_MOMENT)
    kept, lost, cancelled = site.ids
    for task_id in (lost, cancelled):
        site.client.delete_item(TableName=resources.TASKS_TABLE, Key={"task_id": {"S": task_id}, "version": {"N": "0"}})
    assert set(site.heads()) == {kept}
    names = "TASKS=$(table_of Tasks)\nKEYS=$(table_of Idempotency)"
    site.paste(names, COUNT)
    assert set(site.heads()) == {kept}, "a count copies nothing"
    site.paste(names, COPY)
    assert set(site.heads()) == {kept, lost, cancelled}
    site.paste(names, COPY)
    site.paste(names, CANCEL, TASK_ID=cancelled)
    assert site.heads()[cancelled] == "FAILURE"
    paused = site.paste(names, 'delegation pauses --direct --tasks-table "$TASKS"')
    assert "restore" in paused
    # The API, which answers the last command, is no part of this site.
    site.paste(names, RESUME.replace("delegation tasks list --open", ""))
    assert "Nothing is paused" in site.paste(names, 'delegation pauses --direct --tasks-table "$TASKS"')
    site.paste(DELETE)
    assert sorted(site.client.list_tables()["TableNames"]) == sorted(
        {resources.TASKS_TABLE, resources.IDEMPOTENCY_TABLE, resources.REFERENCES_TABLE}
    )


@pytest.mark.long
def test_a_deleted_table_comes_back_under_its_own_name_with_all_that_a_restore_leaves_out(site: RestoredTables) -> None:
    arn = site.client.create_backup(TableName=resources.TASKS_TABLE, BackupName="of-dynamodb")["BackupDetails"][
        "BackupArn"
    ]
    before = site.described(resources.TASKS_TABLE)
    site.client.delete_table(TableName=resources.TASKS_TABLE)
    names = f"TASKS={resources.TASKS_TABLE}\nKEYS={resources.IDEMPOTENCY_TABLE}"
    listed = site.paste(names, UNDER_ITS_NAME.splitlines()[0].replace(" --backup-type SYSTEM", ""))
    assert listed.split()[0] == resources.TASKS_TABLE
    assert arn in listed
    site.paste(names, "\n".join(UNDER_ITS_NAME.splitlines()[1:]), BACKUP_ARN=arn)
    assert len(site.heads()) == 3
    after = site.described(resources.TASKS_TABLE)
    assert after["DeletionProtectionEnabled"] is True
    tags = site.client.list_tags_of_resource(ResourceArn=after["TableArn"])["Tags"]
    assert {one["Key"]: one["Value"] for one in tags} == {"service": "polaris-delegation", "stage": "prod"}
    assert {one["IndexName"] for one in after["GlobalSecondaryIndexes"]} == {
        one["IndexName"] for one in before["GlobalSecondaryIndexes"]
    }
    backups = site.client.describe_continuous_backups(TableName=resources.TASKS_TABLE)["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    living = site.client.describe_time_to_live(TableName=resources.IDEMPOTENCY_TABLE)["TimeToLiveDescription"]
    assert (living["TimeToLiveStatus"], living["AttributeName"]) == ("ENABLED", "expires_at")


def test_the_page_sets_all_that_the_template_of_a_table_has_beside_keys_and_indexes() -> None:
    """A setting that the template gains, and a restore leaves out, has to be set by the page too."""
    from tests.infra.deploying.templates import FORMER

    tables = [
        one["Properties"]
        for one in json.loads(FORMER.read_text(encoding="utf-8"))["as it is"]["PolarisDelegation-prod-Data"][
            "Resources"
        ].values()
        if one["Type"] == "AWS::DynamoDB::Table"
    ]
    restored = {"AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes", "KeySchema", "SSESpecification"}
    by_the_page = {
        "DeletionProtectionEnabled": "--deletion-protection-enabled",
        "PointInTimeRecoverySpecification": "PointInTimeRecoveryEnabled=true",
        "TimeToLiveSpecification": "update-time-to-live",
        "Tags": "tag-resource",
    }
    needed = {name for table in tables for name in table} - restored
    assert needed <= by_the_page.keys()
    assert [name for name in sorted(needed) if by_the_page[name] not in UNDER_ITS_NAME] == []
