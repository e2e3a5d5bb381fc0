"""Builds the API's description into the package, and README without links; all else is in pyproject.toml."""

import re
import shutil
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
        """Build the package, and both files into it; a used checkout's former build may have removed modules."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        description.build(ROOT / "functions" if self.editable_mode else Path(self.build_lib))


def long_description() -> str:
    """Return README for readers of the package alone, which has no files that relative links could lead to."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://)[^)\s]*\)", r"\1", readme)


setup(
    cmdclass={"build_py": BuildPackage},
    long_description=long_description(),
    long_description_content_type="text/markdown",
)
