"""`.ci/need`: what `make` prints on a machine without a required program."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

TOOLS = ("bash", "env", "sed", "head")


@pytest.fixture
def machine(tmp_path: Path):
    """A PATH with the programs that the script uses, and scripted ones."""

    class Machine:
        path = tmp_path / "bin"

        def install(self, name: str, script: str) -> None:
            program = self.path / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

        def need(self, name: str, **env: str) -> subprocess.CompletedProcess[str]:
            command, env = [ROOT / ".ci" / "need", name], {"PATH": str(self.path), **env}
            return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    Machine.path.mkdir()
    for tool in TOOLS:
        (Machine.path / tool).symlink_to(str(shutil.which(tool)))
    return Machine()


def java(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize(
    ("name", "programs", "found"),
    [
        ("java", {"java": java("17.0.15"), "mvn": ""}, "java"),
        ("java", {"java": java("21"), "mvn": ""}, "java"),
        ("node", {"node": "echo v20.20.2"}, "node"),
        ("python", {"python3": "exit 1", "python3.12": "exit 0"}, "python3.12"),
    ],
)
def test_a_program_of_a_supported_version_is_used(machine, name, programs, found):
    for program, script in programs.items():
        machine.install(program, script)
    done = machine.need(name)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(machine.path / found), "")


@pytest.mark.parametrize(
    ("name", "programs", "said"),
    [
        ("java", {"java": java("1.8.0_402")}, ("Java 17 is needed", "JAVA_HOME")),
        ("java", {"java": java("25")}, ("Java 17 is needed", "JAVA_HOME")),
        ("java", {}, ("no java is on the PATH",)),
        ("java", {"java": "exit 1"}, ("not a working Java",)),
        ("node", {"node": "echo v18.19.0"}, ("Node 20 or later",)),
        ("python", {"python3": "exit 1"}, ("Python 3.11 or later is needed",)),
        ("python", {"python3": 'case "$2" in *ensurepip*) exit 1 ;; esac'}, ("python3-venv",)),
    ],
)
def test_a_missing_broken_or_old_program_is_refused_naming_what_to_install(machine, name, programs, said):
    for program, script in programs.items():
        machine.install(program, script)
    done = machine.need(name)
    assert done.returncode == 1
    assert [words for words in said if words not in done.stderr] == []


def test_java_home_wins_over_the_path(machine, tmp_path):
    machine.install("java", java("25"))
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{java('17.0.1')}\n")
    (home / "bin" / "java").chmod(0o755)
    assert machine.need("java", JAVA_HOME=str(home)).stdout.strip() == str(home / "bin" / "java")


def test_missing_maven_is_reported_without_failure(machine):
    machine.install("java", java("17.0.15"))
    done = machine.need("java")
    assert done.returncode == 0
    assert "Maven is not installed" in done.stderr


def test_unknown_program_is_misuse(machine):
    assert machine.need("docker").returncode == 2


@pytest.mark.parametrize(("name", "program"), [("maven", "mvn"), ("go", "go"), ("openssl", "openssl")])
def test_a_program_of_the_generated_clients_is_found_or_named(machine, name, program):
    missing = machine.need(name)
    assert missing.returncode == 1
    assert f"{program} is on the PATH" in missing.stderr or f"{program} is needed" in missing.stderr
    assert "Install it" in missing.stderr
    machine.install(program, "")
    assert machine.need(name).stdout.strip() == str(machine.path / program)
