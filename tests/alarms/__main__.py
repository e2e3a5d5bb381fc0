"""Trip five alarms on a local stack by real faults, and follow the commands of their pages as they are written.

`make alarms-drill` prints a table. An alarm counts if it is raised by what was measured after the fault and not before,
every command of its page works on the running stack, and it is not raised by what is measured afterwards.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from infra.environment.functions import PROBE
from infra.environment.resources import SERVICE_NAME, Resources, environment
from infra.local import resources
from infra.local.aws.server import REGION
from infra.local.identities import CertificateAuthority
from infra.local.processes.programs import import_path
from infra.operations.alarms import ALARMS
from tests.alarms.measured import Measured, eventually, physical
from tests.alarms.shell import RunbookShell
from tests.infra.operations.runbook import blocks
from tests.integration.acceptance.world import SUBMIT, RunningStack
from tests.integration.local.stack_process import StackProcess
from tests.paths import ROOT

PROBES: Final = 5
DEAD: Final = f"{resources.QUEUE}-dead"
_FUNCTIONS: Final = ("Api", "Authorizer", "Dispatcher", "Sweeper", "Acquire", "Prepare", "RunInline")


@dataclass(frozen=True)
class Followed:
    """What happened to one alarm; `failed` are the page's commands that did not work."""

    name: str
    before: bool
    raised: bool
    commands: int
    failed: tuple[str, ...]
    afterwards: bool

    @property
    def is_well(self) -> bool:
        return self.raised and not self.before and not self.failed and not self.afterwards and self.commands > 0


class Drill:
    """A local stack, the alarms of the template over what it measures, and a shell with the runbook's functions."""

    def __init__(self, world: RunningStack, template: Mapping[str, Any], folder: Path) -> None:
        self.world, self.template, self.folder = world, template, folder
        self.logs = world.process.state_dir / "logs"
        self.sqs, self.secrets = world.aws("sqs"), world.aws("secretsmanager")
        self.queue = self.sqs.get_queue_url(QueueName=resources.QUEUE)["QueueUrl"]
        self.dead = self.sqs.get_queue_url(QueueName=DEAD)["QueueUrl"]
        # In the cloud a message is hidden for six minutes after each failure.
        self.sqs.set_queue_attributes(QueueUrl=self.queue, Attributes={"VisibilityTimeout": "1"})
        machine = world.aws("stepfunctions").list_state_machines()["stateMachines"][0]["stateMachineArn"]
        self.rule = "probe"
        world.aws("events").put_rule(Name=self.rule, ScheduleExpression="rate(1 minute)")
        function = "AWS::Lambda::Function"
        names = [re.sub(r"(?<!^)(?=[A-Z])", "_", one).lower() for one in _FUNCTIONS]
        listed = physical(
            template,
            [
                *((function, f"Functions{one}Function", name) for one, name in zip(_FUNCTIONS, names, strict=True)),
                (function, "Probe", PROBE.name),
                ("AWS::Events::Rule", "Probe", self.rule),
                ("AWS::SQS::Queue", "DispatchDeadLetters", self.dead),
                ("AWS::StepFunctions::StateMachine", "Workflow", machine),
            ],
        )
        local = {one["LogicalResourceId"]: one["PhysicalResourceId"] for one in listed}
        local |= {name: DEAD for name, url in local.items() if url == self.dead}
        local[f"{SERVICE_NAME}-prod"] = SERVICE_NAME
        self.measured = Measured(world.aws("cloudwatch"), self.logs, local)
        stack = world.stack
        places = {"aws": stack.aws_endpoint, "dynamodb": stack.dynamodb_endpoint, "logs": str(self.logs)}
        self._shell = RunbookShell(folder, **places, listed=listed)

    @cached_property
    def alarms(self) -> dict[str, dict[str, Any]]:
        """The alarms of the template by their names in the table."""
        found = [one["Properties"] for one in self.template["Resources"].values() if _is_alarm(one)]
        return {one["AlarmName"].removeprefix(f"{SERVICE_NAME}-prod-"): one for one in found}

    def shell(self, commands: str) -> subprocess.CompletedProcess[str]:
        """Run commands after those that the runbook sets up once."""
        return self._shell.run(f"set -x\n{commands}", {**os.environ, "DELEGATION_STACK": str(self.world.process.path)})

    def follow(self, name: str, words: Mapping[str, str]) -> tuple[int, tuple[str, ...]]:
        """Run the blocks of an alarm's page; return how many commands they have and what failed."""
        page = next(ROOT / rule.page for rule in ALARMS if rule.name == name)
        count, failed = 0, []
        text = "\n".join(blocks(page))
        for word, value in words.items():
            text = text.replace(word, value)
        done = self.shell(text)
        count += len([line for line in text.splitlines() if line.strip()])
        if done.returncode:
            failed.append(f"exit {done.returncode}: {done.stderr.strip()[-600:]}")
        (self.folder / f"{name}.txt").write_text(f"$ {text}\n{done.stdout}\n{done.stderr}", encoding="utf-8")
        return count, tuple(failed)

    def since(self, name: str, moment: datetime) -> bool:
        """Measure, and say whether an alarm is raised by what is new since a moment."""
        self.measured.collect()
        visible = self.sqs.get_queue_attributes(QueueUrl=self.dead, AttributeNames=["ApproximateNumberOfMessages"])
        depth = float(visible["Attributes"]["ApproximateNumberOfMessages"])
        dimensions = {"QueueName": DEAD}
        self.measured.put("AWS/SQS", "ApproximateNumberOfMessagesVisible", dimensions, depth, datetime.now(UTC))
        return self.measured.is_raised(self.alarms[name], moment)

    def play(
        self, name: str, trip: Callable[[], Mapping[str, str]], mend: Callable[[], datetime], *, before: bool
    ) -> Followed:
        """Trip an alarm, follow its page, mend what the page leaves to a person, and follow it once more.

        `mend` returns the moment from which nothing may raise the alarm any more.
        """
        began = datetime.now(UTC)
        words = trip()
        raised = bool(eventually(lambda: self.since(name, began)))
        count, failed = self.follow(name, words)
        return Followed(name, before, raised, count, failed, self.since(name, mend()))


def _is_alarm(resource: Mapping[str, Any]) -> bool:
    return bool(resource["Type"] == "AWS::CloudWatch::Alarm")


class Faults:
    """The five faults, and how each ends."""

    def __init__(self, drill: Drill) -> None:
        self.drill, self.world = drill, drill.world
        self.s3 = self.world.aws("s3")
        self.removed: tuple[str, str, bytes] | None = None
        self.secret = drill.secrets.create_secret(Name="probe", SecretString="{}")["ARN"]

    def pause(self) -> Mapping[str, str]:
        done = self.drill.shell('delegation pause --realm --reason "drill of alarms"')
        assert done.returncode == 0, done.stderr
        return {"CATALOG.NAMESPACE.TABLE": f"{self.world.stack.warehouse}.sales.orders"}

    def is_swept(self) -> datetime:
        """Wait until the sweeper has measured that nothing is paused."""
        log = self.drill.logs / "sweeper.log"
        # Functions read what is paused every 20 s.
        size = log.stat().st_size
        eventually(lambda: '"Paused":[0.0]' in log.read_bytes()[size:].decode().replace(" ", ""))
        return datetime.now(UTC)

    def send_no_dispatches(self) -> Mapping[str, str]:
        for number in range(5):
            self.drill.sqs.send_message(QueueUrl=self.drill.queue, MessageBody=f"no dispatch {number}")
        return {}

    def are_dead(self) -> datetime:
        """Wait until SQS has given up the five messages."""
        name = "ApproximateNumberOfMessages"
        url, sqs = self.drill.dead, self.drill.sqs
        eventually(lambda: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name] == "5")
        return datetime.now(UTC)

    def lose_a_manifest(self) -> Mapping[str, str]:
        """Submit the purge of a table whose manifest is missing; it ends in FAILURE."""
        table = self.world.table()
        bucket, _, prefix = table.location.removeprefix("s3://").partition("/")
        manifest = min(one for one in table.objects if one.endswith("-m0.avro"))
        key = manifest.removeprefix(f"s3://{bucket}/")
        assert key.startswith(prefix), (key, prefix)
        body = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        self.s3.delete_object(Bucket=bucket, Key=key)
        self.removed = (bucket, key, body)
        answer = self.world.post(SUBMIT, self.world.request(table))
        task_id = answer.json()["delegation_task_id"]
        eventually(lambda: self.world.tasks.get(task_id).status == "FAILURE")
        # Before it is retried, as the page says, its cause is corrected.
        self.s3.put_object(Bucket=bucket, Key=key, Body=body)
        self.task_id = task_id
        return {"TASK_ID": task_id}

    def is_retried(self) -> datetime:
        eventually(lambda: self.world.tasks.get(self.task_id).status == "SUCCESS")
        return datetime.now(UTC)

    def store(self, certificate: Path, key: Path) -> None:
        """Give the probe's function a certificate."""
        parts = {"certificate": certificate, "key": key, "authority": self.world.stack.ca_cert}
        document = {name: path.read_text(encoding="ascii") for name, path in parts.items()}
        self.drill.secrets.put_secret_value(SecretId=self.secret, SecretString=json.dumps(document))

    def probe(self) -> None:
        """Run the probe's function as the schedule does; its log is beside the others."""
        given = Resources(probe_url=self.world.stack.edge_url, probe_secret_arn=self.secret)
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": import_path(),
            "AWS_ENDPOINT_URL": self.world.stack.aws_endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            **environment(PROBE.name, given),
        }
        code = f"from {PROBE.module} import handler; handler({{}}, None)"
        with (self.drill.logs / f"{PROBE.name}.log").open("ab") as log:
            subprocess.run([sys.executable, "-c", code], env=env, stdout=log, stderr=log, check=True)

    def probe_with_a_foreign_certificate(self) -> Mapping[str, str]:
        foreign = CertificateAuthority.create(self.drill.folder / "foreign", name="Another CA")
        pair = foreign.issue_client("probe", name="probe")
        self.store(pair.cert, pair.key)
        for _ in range(PROBES):
            self.probe()
        return {}

    def probe_with_an_admitted_certificate(self) -> datetime:
        began = datetime.now(UTC)
        self.store(self.world.stack.client_cert, self.world.stack.client_key)
        self.probe()
        return began

    def each(self) -> Iterator[Followed]:
        """Play the five, each with whether it was raised before any fault."""
        began = self.probe_with_an_admitted_certificate()
        plays: tuple[tuple[str, Callable[[], Mapping[str, str]], Callable[[], datetime]], ...] = (
            ("Paused", self.pause, self.is_swept),
            ("DispatchErrors", self.send_no_dispatches, self.are_dead),
            ("DeadLetters", dict, lambda: datetime.now(UTC)),
            ("TasksFailed", self.lose_a_manifest, self.is_retried),
            ("ProbeFailed", self.probe_with_a_foreign_certificate, self.probe_with_an_admitted_certificate),
        )
        before = {name: self.drill.since(name, began) for name, _, _ in plays}
        for name, trip, mend in plays:
            yield self.drill.play(name, trip, mend, before=before[name])


def service_template(folder: Path) -> Mapping[str, Any]:
    """The service's template with everything on."""
    from infra.stacks.build import build
    from tests.infra.conftest import EVERYTHING

    stacks = build(EVERYTHING, outdir=str(folder)).app.synth().stacks
    return next(one.template for one in stacks if one.stack_name.endswith("-Service"))


def main() -> int:
    """Play the five faults; 1 if an alarm is not raised or a page cannot be followed."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as opened:
        folder = Path(name)
        template = service_template(folder / "cdk.out")
        process = StackProcess(
            folder / "state",
            *("--sweep-seconds", "2"),
            *("--property", "delegation.retry.TABLE_PURGE.initial-backoff-duration=1s"),
        )
        opened.callback(process.end, signal.SIGTERM)
        world = opened.enter_context(contextlib.closing(RunningStack(process, folder / "recorded")))
        drill = Drill(world, template, folder)
        wrong = 0
        sys.stdout.write(f"{'alarm':<16}{'raised before':<15}{'by the fault':<14}{'commands':>8}  {'afterwards':<12}\n")
        for one in Faults(drill).each():
            cells = [
                ("no", "yes")[one.before],
                ("no", "yes")[one.raised],
                one.commands,
                ("clear", "raised")[one.afterwards],
            ]
            sys.stdout.write(f"{one.name:<16}{cells[0]:<15}{cells[1]:<14}{cells[2]:>8}  {cells[3]:<12}\n")
            sys.stdout.writelines(f"  {line}\n" for line in one.failed)
            sys.stdout.flush()
            wrong += not one.is_well
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
