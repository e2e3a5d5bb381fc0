"""`make localstack-test`: the synthesised stacks on LocalStack, and three purges through them.

    python -m tests.localstack [--environment .venv-localstack] [--package build/localstack]
    python -m tests.localstack --endpoint http://127.0.0.1:4566 --address 172.17.0.1

Starts LocalStack on this machine, or uses one that runs (`--endpoint`, or LOCALSTACK_ENDPOINT), also in a container;
then `--address` is the address of this machine at which its functions reach the stand-ins of Polaris, token issuer, S3
front and EMR Serverless. Exits with 1 if anything differs from what is expected.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from localstack_client.session import Session
from rich.console import Console

from infra.environment.context import ROOT
from infra.local.demo.tables import INLINE_MAX_FILES
from infra.local.processes.programs import LOOPBACK
from infra.package.build import main as build_package
from infra.stacks.build import build
from polaris_common.errors import DelegationError
from tests.localstack.deploy import CloudFormation
from tests.localstack.evidence import Deployed, Evidence, not_enough
from tests.localstack.purges import purge_without_message, run_demo
from tests.localstack.relay import Relays
from tests.localstack.replaced import EDITS, REPLACED, edited
from tests.localstack.server import localstack
from tests.localstack.settings import STACKS, addresses, context, processor_of
from tests.localstack.standins import InvokedFunction, StandIns, start_front, write_stack_file
from tests.localstack.templates import require_used, taken_out


def main() -> int:
    """Run everything; return 0 if every result is as expected."""
    options = _options()
    console = Console(highlight=False, soft_wrap=True)
    # Ctrl-C and a CI's end unwind the same way: every started process ends, by its id.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    try:
        with ExitStack() as cleanup:
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="localstack-")))
            problems = _run(options, folder, console, cleanup)
    except DelegationError as error:
        console.print(f"FAILED: {error}", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped; every process that was started has ended.")
        return 130
    for problem in problems:
        console.print(f"FAILED: {problem}", markup=False)
    seconds = time.monotonic() - began
    console.print(f"{'Some results are unexpected' if problems else 'All results are as expected'}; {seconds:.0f} s")
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-localstack")
    parser.add_argument("--package", type=Path, help="the output of `python -m infra.package`; built by default")
    parser.add_argument("--endpoint", default=os.environ.get("LOCALSTACK_ENDPOINT"), help="of a LocalStack that runs")
    parser.add_argument("--address", default=LOOPBACK, help="of this machine, for the functions of that LocalStack")
    return parser.parse_args()


def _run(options: argparse.Namespace, folder: Path, console: Console, cleanup: ExitStack) -> list[str]:
    package = options.package or _build_package(console)
    if options.endpoint:
        endpoint: str = options.endpoint.rstrip("/")
    else:
        endpoint = cleanup.enter_context(localstack(options.environment, folder))
    console.print(f"LocalStack answers at {endpoint}")
    session = Session(localstack_host=urlsplit(endpoint).netloc)
    stand_ins = StandIns.start(endpoint, session, folder, Relays(options.address, cleanup), cleanup)
    settings = context(stand_ins.identities, package.absolute(), processor_of(), inline_max_files=INLINE_MAX_FILES)
    build(settings, outdir=str(folder / "cdk.out")).app.synth()
    deployed = _deploy(CloudFormation(session, folder / "cdk.out", endpoint), stand_ins, console)
    session.client("secretsmanager").put_secret_value(
        SecretId=deployed.data.outputs["PolarisSecretArn"], SecretString=stand_ins.secret()
    )
    front = start_front(
        stand_ins,
        api=InvokedFunction(session, deployed.function("api")),
        authorizer=InvokedFunction(session, deployed.function("authorizer")),
        vpc_endpoint=deployed.network.only("AWS::EC2::VPCEndpoint", "ApiEndpoint"),
        api_id=deployed.service.only("AWS::ApiGateway::RestApi"),
        cleanup=cleanup,
    )
    stack_file = write_stack_file(stand_ins, front, endpoint, folder)
    problems = run_demo(stack_file, console)
    mapping = deployed.service.only("AWS::Lambda::EventSourceMapping")
    task_id = purge_without_message(
        stack_file, session.client("sqs"), session.client("lambda"), mapping, deployed.queue
    )
    console.print(f"The task {task_id}, whose message was taken away, was dispatched by the sweeper and succeeded")
    lines = Evidence(session, endpoint, deployed, stand_ins).lines()
    _print(lines, console)
    return [*problems, *not_enough(lines)]


def _build_package(console: Console) -> Path:
    """Build the bundles for this machine's processor, which LocalStack's functions run from."""
    output = ROOT / "build" / "localstack"
    console.print("Building the package for this machine …")
    archives = str(output.with_name("localstack-archives"))
    status = build_package(["--architecture", str(processor_of()), "--output", str(output), "--archives", archives])
    if status:
        sys.exit(status)
    return output


def _deploy(stacks: CloudFormation, stand_ins: StandIns, console: Console) -> Deployed:
    templates = {name: stacks.template(name) for name in STACKS}
    require_used(REPLACED, templates.values())
    found = addresses(stand_ins.polaris_url, stand_ins.jwks_url)
    made = []
    for name, template in templates.items():
        console.print(f"Deploying {name} …")
        made.append(stacks.deploy(name, edited(taken_out(template, REPLACED), found, stand_ins.emr_url)))
    return Deployed(*made)


def _print(lines: list, console: Console) -> None:
    console.print("\nWhat ran on LocalStack:")
    for line in lines:
        console.print(f"  {'ok ' if line.is_enough else 'NOT'} {line.service}: {line.what}", markup=False)
    console.print("Replaced, because this edition of LocalStack does not create it:")
    for each in REPLACED:
        console.print(f"  {each.type}: {each.by}", markup=False)
    console.print("Edited:")
    for what, why in EDITS.items():
        console.print(f"  {what}: {why}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
