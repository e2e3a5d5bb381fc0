"""Builds the API's description into the package; everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from infra.package import description  # noqa: E402 - setuptools runs this file from any folder


class BuildPackage(build_py):
    """Adds openapi.json and docs.html, which no commit contains; an editable installation has them in its sources."""

    def run(self) -> None:
        """Build the package, and both files into it."""
        super().run()
        description.build(ROOT / "functions" if self.editable_mode else Path(self.build_lib))


setup(cmdclass={"build_py": BuildPackage})
