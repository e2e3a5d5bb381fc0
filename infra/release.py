"""`make release`: tag the version of pyproject.toml, and write its wheel and notes into dist (docs/releasing.md)."""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from infra.environment.context import ROOT


class NotReleasable(Exception):
    """The checkout lacks something that a release needs; the message names it."""


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def notes_of(changelog: str, version: str) -> str:
    """Return the changelog's section of a version with its date; raises NotReleasable."""
    match = re.search(
        rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if match is None:
        raise NotReleasable(f"CHANGELOG.md has no heading `## {version}, YYYY-MM-DD`: write the version's date there")
    return match[1].strip() + "\n"


def prepared(root: Path) -> tuple[str, str]:
    """Return the version and its notes; raises NotReleasable."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    notes = notes_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if git(root, "status", "--porcelain"):
        raise NotReleasable("the checkout has changes: commit them")
    if git(root, "tag", "--list", f"v{version}"):
        raise NotReleasable(f"the tag v{version} exists: raise `version` in pyproject.toml")
    return version, notes


def main() -> None:
    """Release the commit that is checked out; `--dry-run` checks only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="check, and change nothing")
    dry_run = parser.parse_args().dry_run
    try:
        version, notes = prepared(ROOT)
    except NotReleasable as error:
        sys.exit(str(error))
    if not dry_run:
        subprocess.run(["make", "wheel"], cwd=ROOT, check=True)
        (ROOT / "dist" / f"notes-{version}.md").write_text(notes, encoding="utf-8")
        git(ROOT, "tag", "--annotate", f"v{version}", "--message", f"Release {version}")
    sys.stdout.write(
        f"v{version} can be released\n" if dry_run else f"tagged v{version}; push it: git push origin v{version}\n"
    )


if __name__ == "__main__":
    main()
