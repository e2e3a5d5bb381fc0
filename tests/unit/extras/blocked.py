"""Code for a new interpreter in which only some distributions can be imported, as in an environment without extras."""

import os
import subprocess
import sys
from collections.abc import Mapping

from infra.local.processes.programs import import_path

CLIENT = ("httpx", "httpcore", "h11", "certifi", "idna", "anyio", "pydantic", "pydantic_core", "annotated_types")
"""What `pip install polaris-delegation-service` brings, with `typing_extensions` and `typing_inspection`."""
_PRELUDE = """
import sys, sysconfig

ALLOWED = {allowed!r}

class Absent:
    '''A meta path finder that knows no module of another distribution.'''

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ALLOWED or top in sys.stdlib_module_names or top.startswith("_"):
            return None
        raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run_without(
    code: str, *also: str, arguments: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter in which only the client's distributions, and those given, can be imported."""
    allowed = {*CLIENT, "typing_extensions", "typing_inspection", "sniffio", "delegation", "polaris_common", *also}
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": import_path(), **(environment or {})}
    command = [sys.executable, "-c", _PRELUDE.format(allowed=allowed) + code, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)
