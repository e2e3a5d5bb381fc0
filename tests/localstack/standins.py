"""The parts beside LocalStack, all of them from the local stack: Polaris, token issuer, EMR Serverless, HTTPS front."""

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from botocore.config import Config
from localstack_client.session import Session

from delegation.cli.connection import Stack
from delegation.polaris.requests import DEFAULT_SCOPE
from infra.local.aws.server import REGION
from infra.local.backends import WAREHOUSE_BUCKET, AwsKeys, Endpoints
from infra.local.catalog.access import ROOT_PRINCIPAL
from infra.local.catalog.server import LocalCatalog
from infra.local.emr.endpoint import EmrServerlessEndpoint
from infra.local.emr.spark_jobs import LocalSparkJobs
from infra.local.front.apigateway import LocalApiGateway
from infra.local.front.https import Front, TlsFiles
from infra.local.identities import Identities
from infra.local.lambdas.functions import Invocation
from infra.local.resources import create_buckets
from infra.local.s3.front import S3Front
from infra.local.s3.requests import VendedKeys
from infra.local.stack_file import write
from infra.local.supervisor import BASE_PATH
from infra.package.build import find_python
from tests.localstack.relay import Relays
from tests.localstack.replaced import ACCOUNT, APPLICATION_ID

REALM: Final = "POLARIS"
WAREHOUSE: Final = "demo"
KEYS: Final = AwsKeys("test", "test")


@dataclass(frozen=True, slots=True)
class StandIns:
    """The started stand-ins, and their addresses as the functions of LocalStack reach them."""

    identities: Identities
    catalog: LocalCatalog
    jobs: LocalSparkJobs
    polaris_url: str
    jwks_url: str
    s3_url: str
    emr_url: str

    @classmethod
    def start(
        cls, endpoint: str, session: Session, folder: Path, relays: Relays, cleanup: contextlib.ExitStack
    ) -> Self:
        """Start all but the HTTPS front; `cleanup` ends them, also after an error."""
        identities = Identities.create(folder / "pki")
        identities.issuer.start()
        cleanup.callback(identities.issuer.stop)
        vended = VendedKeys()
        s3_front = S3Front(endpoint, vended).start()
        cleanup.callback(s3_front.stop)
        s3_url = relays.reach(s3_front.url)
        s3 = session.client("s3")
        create_buckets(s3, WAREHOUSE_BUCKET)
        catalog = LocalCatalog(
            name=WAREHOUSE,
            location=f"s3://{WAREHOUSE_BUCKET}/{WAREHOUSE}",
            s3=s3,
            sts=session.client("sts"),
            keys=vended,
            s3_endpoint=s3_url,
            region=REGION,
            principals=[identities.owner, identities.service],
            root=identities.root,
            realm=REALM,
        ).start()
        cleanup.callback(catalog.stop)
        endpoints = Endpoints(endpoint, endpoint, endpoint, KEYS)
        jobs = LocalSparkJobs(
            log_folder=folder / "emr",
            environment=endpoints.environment(),
            download=lambda bucket, key, target: s3.download_file(bucket, key, str(target)),
            # The archive's compiled modules are for the cloud's Python, whatever this checkout runs on.
            python=find_python() or sys.executable,
        )
        emr = EmrServerlessEndpoint(jobs, region=REGION, account=ACCOUNT, application_id=APPLICATION_ID).start()
        cleanup.callback(emr.stop)
        return cls(
            identities,
            catalog,
            jobs,
            relays.reach(catalog.url),
            relays.reach(identities.issuer.jwks_url),
            s3_url,
            relays.reach(emr.url),
        )

    def secret(self) -> str:
        """Return what an operator stores in the secret that the data stack creates: the service's principal."""
        service = self.identities.service
        return json.dumps({"client_id": service.client_id, "client_secret": service.client_secret.get_secret_value()})


class InvokedFunction:
    """A function of LocalStack, for the HTTPS front."""

    def __init__(self, session: Session, name: str) -> None:
        self.name = name
        # An invocation of the API takes as long as its purge; a second one would be another request.
        patient = Config(read_timeout=120, retries={"total_max_attempts": 1})
        self._lambda = session.client("lambda", config=patient)

    def invoke(self, payload: bytes) -> Invocation:
        """Run the function once."""
        answer = self._lambda.invoke(FunctionName=self.name, Payload=payload)
        request = answer["ResponseMetadata"]["RequestId"]
        return Invocation(request, answer["Payload"].read(), answer.get("FunctionError"))


def start_front(
    stand_ins: StandIns,
    *,
    api: InvokedFunction,
    authorizer: InvokedFunction,
    vpc_endpoint: str,
    api_id: str,
    cleanup: contextlib.ExitStack,
) -> Front:
    """Start the front of the private profile: it ends mutual TLS, as the load balancer, and calls both functions."""
    identities = stand_ins.identities
    gateway = LocalApiGateway("localhost", BASE_PATH, REGION, ACCOUNT, api_id=api_id, vpc_endpoint=vpc_endpoint)
    front = Front(
        api=api,  # type: ignore[arg-type]
        authorizer=authorizer,  # type: ignore[arg-type]
        tls=TlsFiles(identities.server.cert, identities.server.key, identities.authority.files.cert),
        gateway=gateway,
    )
    cleanup.callback(front.stop)
    return front.start()


def write_stack_file(stand_ins: StandIns, front: Front, endpoint: str, folder: Path) -> Path:
    """Write stack.json, by which the command `delegation` and the demo reach the deployed service."""
    identities = stand_ins.identities
    described = Stack(
        edge_url=front.url,
        **identities.of_callers(),
        realm=REALM,
        aws_endpoint=endpoint,
        dynamodb_endpoint=endpoint,
        s3_endpoint=stand_ins.s3_url,
        polaris_url=stand_ins.polaris_url,
        polaris_credential=":".join((identities.owner.client_id, identities.owner.client_secret.get_secret_value())),
        polaris_scope=DEFAULT_SCOPE,
        polaris_root_credential=f"{ROOT_PRINCIPAL}:{identities.root.get_secret_value()}",
        polaris_public_key=stand_ins.catalog.tokens.public_key_pem(),
        warehouse=WAREHOUSE,
        gateway_url=None,
    )
    return write(described, folder)
