"""The two S3 servers, each started on a folder of files and a free port of this machine."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from botocore.config import Config

from delegation.storage.credentials import S3Settings
from delegation.storage.sessions import s3_client
from infra.local.processes.programs import LOOPBACK, TetheredProcess, answers, free_port
from tests.s3_servers.programs import PROGRAMS, RCLONE, VERSITYGW

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

AWS: Final = {
    "AWS_ACCESS_KEY_ID": "testing-key",
    "AWS_SECRET_ACCESS_KEY": "testing-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}
"""The credentials that both servers are started with; for the environment of a client."""

NAMES: Final = tuple(program.name for program in PROGRAMS)
_START_SECONDS = 60.0


@dataclass(frozen=True)
class RealServer:
    """A running server; `keeps_versions` tells whether a bucket of it can."""

    name: str
    url: str
    keeps_versions: bool

    @property
    def settings(self) -> S3Settings:
        return S3Settings(endpoint=self.url, region="us-east-1", path_style=True)

    def client(self, *, tries: int = 1) -> "S3Client":
        """Return a client as an administrator's, which sends each call up to `tries` times."""
        retries: Any = {"total_max_attempts": tries, "mode": "standard"}
        config = Config(s3={"addressing_style": "path"}, retries=retries, max_pool_connections=16)
        return s3_client(
            self.settings,
            config=config,
            aws_access_key_id=AWS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=AWS["AWS_SECRET_ACCESS_KEY"],
        )


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[RealServer]:
    """Run the server with its files below `folder`; raises `UnavailableError` unless its program is built."""
    port = free_port()
    argv = {VERSITYGW.name: _versitygw, RCLONE.name: _rclone}[name](folder, f"{LOOPBACK}:{port}")
    # rclone reads settings from the home folder, which is not this user's.
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ROOT_ACCESS_KEY": AWS["AWS_ACCESS_KEY_ID"],
        "ROOT_SECRET_KEY": AWS["AWS_SECRET_ACCESS_KEY"],
    }
    process = TetheredProcess.start(argv, env=env, log=folder / "server.log")
    try:
        process.wait_until(name, lambda: answers(port), timeout_seconds=_START_SECONDS)
        yield RealServer(name, f"http://{LOOPBACK}:{port}", keeps_versions=name == VERSITYGW.name)
    finally:
        process.stop()


def _versitygw(folder: Path, address: str) -> Sequence[str]:
    # Attributes of objects lie beside the data, since not every file system has extended attributes.
    for part in ("data", "attributes", "versions"):
        (folder / part).mkdir(parents=True)
    beside = ("--sidecar", str(folder / "attributes"), "--versioning-dir", str(folder / "versions"))
    return (str(VERSITYGW.built()), "--port", address, "posix", *beside, str(folder / "data"))


def _rclone(folder: Path, address: str) -> Sequence[str]:
    (folder / "data").mkdir(parents=True)
    key = f"{AWS['AWS_ACCESS_KEY_ID']},{AWS['AWS_SECRET_ACCESS_KEY']}"
    return (str(RCLONE.built()), "serve", "s3", str(folder / "data"), "--addr", address, "--auth-key", key)
