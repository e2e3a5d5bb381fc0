"""The Helm chart of the worker profile: helm itself, and the values that render the plain manifests.

`python -m tests.infra.pairing.chart` builds helm if there is none, lints the chart and prints what it renders.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from infra.local.errors import UnavailableError
from tests.paths import ROOT
from tests.s3_servers.programs import GoProgram

CHART: Final = ROOT / "infra" / "pairing" / "chart"
PLAIN: Final = ROOT / "infra" / "pairing" / "worker.yaml"
RELEASE: Final = "delegation-worker"
HELM: Final = GoProgram("helm", "helm.sh/helm/v3/cmd/helm", "v3.19.0")
SKIPPED: Final = 77
Manifests = dict[str, dict[str, Any]]


def helm() -> str:
    """Return the path of helm: that of HELM, of the PATH or the one that was built; raise UnavailableError."""
    named = os.environ.get("HELM") or shutil.which("helm")
    return named or str(HELM.built())


def by_kind(text: str) -> Manifests:
    """Return manifests by their kind, of which each is there once."""
    found = [one for one in yaml.safe_load_all(text) if one]
    kinds: Manifests = {one["kind"]: one for one in found}
    if len(kinds) != len(found):
        raise ValueError("two manifests have one kind")
    return kinds


def values() -> dict[str, Any]:
    """Return the values by which the chart renders the plain manifests."""
    plain = by_kind(PLAIN.read_text(encoding="utf-8"))
    role = plain["ServiceAccount"]["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
    return {"roleArn": role, "settings": plain["ConfigMap"]["data"]}


def run(*arguments: str, given: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run helm with values."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "values.yaml")
        path.write_text(yaml.safe_dump(given), encoding="utf-8")
        command = [helm(), *arguments, "--values", str(path)]
        env = {**os.environ, "HELM_CACHE_HOME": folder, "HELM_CONFIG_HOME": folder, "HELM_DATA_HOME": folder}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def rendered(given: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Render the chart."""
    return run("template", RELEASE, str(CHART), given=given)


def main() -> int:
    """Build helm if there is none, lint, and print what is rendered."""
    try:
        if not (os.environ.get("HELM") or shutil.which("helm")):
            HELM.build()
    except UnavailableError as error:
        sys.stderr.write(f"helm is needed to lint and render the chart, and is not there: {error}\n")
        return SKIPPED
    for done in (run("lint", "--strict", str(CHART), given=values()), rendered(values())):
        sys.stderr.write(done.stdout if "lint" in done.args else done.stderr)
        if done.returncode:
            sys.stderr.write(done.stderr)
            return done.returncode
    sys.stdout.write(done.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
