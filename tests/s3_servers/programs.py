"""The S3 servers' programs: built once with Go, at fixed versions, and kept in the user's cache folder.

Go fetches the sources as its own settings say (GOPROXY); a module's hash is checked by Go's checksum database.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.local.aws.dynamodb import cache_folder
from infra.local.errors import UnavailableError

_BUILD_TIMEOUT_SECONDS: Final = 3600


@dataclass(frozen=True)
class GoProgram:
    """A program and the version of the Go module that it is built from."""

    name: str
    package: str
    version: str

    @property
    def path(self) -> Path:
        """Where the program is, once it is built."""
        return cache_folder() / "go" / f"{self.name}-{self.version}" / self.name

    def built(self) -> Path:
        """Return the program's path; raise `UnavailableError` unless it has been built."""
        if not self.path.is_file():
            raise UnavailableError(f"{self.name} {self.version} is not built: `make s3-servers-test` builds it with Go")
        return self.path

    def build(self) -> Path:
        """Build the program unless that was done; raise `UnavailableError` if Go is absent or cannot build it."""
        folder = self.path.parent
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.path.is_file():
                go = shutil.which("go")
                if go is None:
                    raise UnavailableError(f"Go is not installed (it builds {self.name}; Go 1.26 is known to work)")
                with tempfile.TemporaryDirectory(dir=folder.parent) as place:
                    self._install(go, Path(place))
                    folder.mkdir(exist_ok=True)
                    (Path(place) / self.name).rename(self.path)
        return self.path

    def _install(self, go: str, place: Path) -> None:
        command = [go, "install", f"{self.package}@{self.version}"]
        env = {**os.environ, "GOBIN": str(place), "CGO_ENABLED": "0"}
        done: subprocess.CompletedProcess[str] | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, check=False, timeout=_BUILD_TIMEOUT_SECONDS
            )
        if done is None:
            raise UnavailableError(f"Go did not build {self.name} within {_BUILD_TIMEOUT_SECONDS} s")
        if done.returncode != 0 or not (place / self.name).is_file():
            said = (done.stderr.strip().splitlines() or ["Go printed no error"])[-1]
            raise UnavailableError(f"Go could not build {self.package}@{self.version}: {said}")


VERSITYGW: Final = GoProgram("versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0")
RCLONE: Final = GoProgram("rclone", "github.com/rclone/rclone", "v1.76.0")
PROGRAMS: Final = (VERSITYGW, RCLONE)
