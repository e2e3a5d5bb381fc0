"""The recorded wheels: every pin is that of constraints.txt, has hashes and no address; other bytes are refused."""

import re
from pathlib import Path

import pytest

from infra.package import wheels
from infra.package.parts import LAMBDA, SPARK, Processor
from infra.package.wheels import WheelUnusable, absent, digest, download, pins, record, recorded, requirements
from tests.paths import ROOT
from tests.unit.repository.test_packaging import constraints, normalized


def pinned(part: str) -> dict[str, str]:
    return {normalized(name): version for name, version, _ in pins(recorded(part).read_text().splitlines())}


@pytest.mark.parametrize("part", [LAMBDA, SPARK])
def test_the_recorded_wheels_are_those_of_the_constraints(part: str) -> None:
    versions = {normalized(name): version for name, _, version in (line.partition("==") for line in constraints())}
    found = pinned(part)
    assert found == {name: versions[name] for name in found}
    direct = {normalized(re.split(r"[\[<>=; ]", one, maxsplit=1)[0]) for one in requirements()}
    assert direct - set(found) == set()
    assert "://" not in recorded(part).read_text()


def test_jobs_have_what_functions_have_and_the_same_bytes() -> None:
    of_functions, of_jobs = (recorded(part).read_text().splitlines()[1:] for part in (LAMBDA, SPARK))
    assert of_functions == of_jobs


def test_a_line_without_a_hash_is_refused() -> None:
    with pytest.raises(WheelUnusable, match="httpx==1"):
        list(pins(["# a comment", "", "httpx==1"]))


def test_a_wheel_with_other_bytes_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "acme_client-1.0-py3-none-any.whl"
    wheel.write_bytes(b"as it was recorded")
    (tmp_path / "wheels-lambda.txt").write_text(record(LAMBDA, [tmp_path]))
    monkeypatch.setattr(wheels, "recorded", lambda part: tmp_path / f"wheels-{part}.txt")
    assert f"acme-client==1.0 --hash=sha256:{digest(wheel)}" in (tmp_path / "wheels-lambda.txt").read_text()
    asked: list[str] = []
    monkeypatch.setattr(wheels, "pip", lambda command, *_arguments: asked.append(command))
    download(LAMBDA, Processor.ARM64, tmp_path)
    assert asked == []
    wheel.write_bytes(b"as somebody changed it")
    assert absent(LAMBDA, tmp_path) == ["acme-client"]
    with pytest.raises(WheelUnusable, match="acme-client"):
        download(LAMBDA, Processor.ARM64, tmp_path)
    assert asked == ["download"]


def test_pip_checks_the_hashes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(wheels, "pip", lambda *arguments: asked.append(arguments))
    wheels.install(LAMBDA, Processor.ARM64, tmp_path, tmp_path)
    assert {"--require-hashes", "--no-index", str(ROOT / "infra" / "package" / "wheels-lambda.txt")} <= {*asked[0]}
