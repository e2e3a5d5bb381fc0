"""LocalStack from PyPI as a process of this machine, on a free loopback port, without containers and downloads.

LocalStack would fetch DynamoDB Local, Java and JSONata at their first use. All three are put where it looks for them
beforehand, the jars as Maven fetches them for the local stack too.
"""

import os
import re
import shutil
import signal
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx

from infra.local.aws.dynamodb import fetch, java
from infra.local.errors import LocalStackError
from infra.local.processes.programs import LOOPBACK, TetheredProcess, free_port
from tests.integration.local.stack_process import descendants

JARS_POM: Final = Path(__file__).with_name("jars-pom.xml")
JSONATA_VERSION: Final = "0.9.7"
"""The version that LocalStack 4.14 names; jars-pom.xml has the same."""
START_SECONDS: Final = 120.0
_MAIN: Final = "software.amazon.dynamodb.services.local.main.ServerRunner"
_MANIFEST_LINE: Final = 70


class EnvironmentAbsent(LocalStackError):
    """LocalStack's own environment was not installed."""


@contextmanager
def localstack(environment: Path, folder: Path) -> Iterator[str]:
    """Run the LocalStack of a virtual environment on files below `folder`; yield its endpoint, end it afterwards.

    Raises EnvironmentAbsent, UnavailableError without Java 17 or Maven, CannotStartError.
    """
    python, runtime = environment / "bin" / "python", environment / "runtime" / "bin" / "python"
    for program in (python, runtime):
        if not program.exists():
            raise EnvironmentAbsent(f"{program} does not exist: run this by `make localstack-test`, which installs it")
    place_downloads(folder / "root", dynamodb=fetch(), others=fetch(JARS_POM, "localstack-jars"), java_program=java())
    port = free_port()
    process = TetheredProcess.start(
        [str(python.absolute()), "-m", "localstack.runtime.main"],
        env=variables(os.environ, port=port, root=folder / "root", runtime=runtime.absolute()),
        log=folder / "localstack.log",
    )
    try:
        process.wait_until("LocalStack", lambda: is_ready(port), timeout_seconds=START_SECONDS)
        yield f"http://{LOOPBACK}:{port}"
    finally:
        # It starts DynamoDB Local in a session of its own, which ending the group would miss.
        started = descendants(process.pid)
        process.stop(grace_seconds=20)
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def variables(inherited: Mapping[str, str], *, port: int, root: Path, runtime: Path) -> dict[str, str]:
    """Return LocalStack's variables ("Configuration" in its documentation); nothing of this machine's AWS settings."""
    kept = {name: inherited[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in inherited}
    address = f"{LOOPBACK}:{port}"
    return {
        **kept,
        "LANG": "C.UTF-8",
        "OVERRIDE_IN_DOCKER": "0",
        "FILESYSTEM_ROOT": str(root),
        "TMPDIR": str(root / "tmp"),
        "GATEWAY_LISTEN": address,
        "LOCALSTACK_HOST": address,
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DYNAMODB_IN_MEMORY": "1",
        "DYNAMODB_REMOVE_EXPIRED_ITEMS": "0",
        "SQS_ENDPOINT_STRATEGY": "path",
        "LAMBDA_RUNTIME_EXECUTOR": "process",
        "LAMBDA_PROCESS_PYTHON": str(runtime),
        "LAMBDA_RUNTIME_ENVIRONMENT_TIMEOUT": "240",
        "HOSTNAME_FROM_LAMBDA": LOOPBACK,
    }


def is_ready(port: int) -> bool:
    """Return whether LocalStack has started; it answers before that."""
    try:
        stages = httpx.get(f"http://{LOOPBACK}:{port}/_localstack/init/ready", timeout=5).json()
    except (httpx.TransportError, ValueError):
        return False
    return bool(stages.get("completed"))


def place_downloads(root: Path, *, dynamodb: Path, others: Path, java_program: str) -> None:
    """Put what LocalStack would download at their first use below its folder: DynamoDB Local, Java, JSONata."""
    (root / "tmp").mkdir(parents=True)
    library = root / "var" / "lib" / "localstack" / "lib"
    server = library / "dynamodb-local" / "2"
    jars = server / "DynamoDBLocal_lib"
    shutil.copytree(dynamodb, jars)
    for native in jars.glob("libsqlite4java-*"):
        plain = jars / re.sub(r"-\d[\d.]*(\.\w+)$", r"\1", native.name)
        if not plain.exists():
            shutil.copy(native, plain)
    shutil.copy(next(others.glob("byte-buddy-agent-*.jar")), server / "ddb-local-loader-0.1.jar")
    with zipfile.ZipFile(server / "DynamoDBLocal.jar", "w") as archive:
        class_path = sorted(f"{jars.name}/{jar.name}" for jar in jars.glob("*.jar"))
        archive.writestr("META-INF/MANIFEST.MF", manifest(_MAIN, class_path))
    (library / "java").mkdir(parents=True)
    (library / "java" / "21").symlink_to(Path(java_program).resolve().parents[1])
    jsonata = library / "jsonata" / JSONATA_VERSION
    jsonata.mkdir(parents=True)
    for jar in (*others.glob("jsonata-*.jar"), *others.glob("jackson-*.jar")):
        shutil.copy(jar, jsonata)


def manifest(main: str, jars: Iterable[str]) -> str:
    """Return a jar's manifest with a class path, in lines of at most 72 bytes (JAR File Specification)."""
    line = f"Class-Path: {' '.join(jars)}"
    first, rest = line[:_MANIFEST_LINE], line[_MANIFEST_LINE:]
    folded = [first, *(f" {rest[at : at + _MANIFEST_LINE - 1]}" for at in range(0, len(rest), _MANIFEST_LINE - 1))]
    return "\r\n".join(["Manifest-Version: 1.0", f"Main-Class: {main}", *folded, "", ""])
