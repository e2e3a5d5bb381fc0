"""The constraints file pins every dependency of pyproject.toml, without URLs."""

import re
import tomllib

from tests.paths import ROOT

PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+")


def normalized(name: str) -> str:
    """Return the normalized name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_line_is_an_exact_pin_without_a_url():
    assert [line for line in constraints() if not PIN.fullmatch(line)] == []


def test_every_direct_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    required = {
        normalized(re.split(r"[\[<>=; ]", requirement, maxsplit=1)[0])
        for requirement in [*project["dependencies"], *(line for extra in extras for line in extra)]
    }
    pinned = {normalized(line.partition("==")[0]) for line in constraints()}
    assert required - pinned == set()
