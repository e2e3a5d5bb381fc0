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
            return subprocess.run(
                [ROOT / ".ci" / "need", name],
                env={"PATH": str(self.path), **env},
                capture_output=True,
                text=True,
                check=False,
            )

    Machine.path.mkdir()
    for tool in TOOLS:
        (Machine.path / tool).symlink_to(str(shutil.which(tool)))
    return Machine()


def java(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_java_that_spark_supports_is_used(machine, version):
    machine.install("java", java(version))
    machine.install("mvn", "")
    done = machine.need("java")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(machine.path / "java"), "")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "25"])
def test_other_java_is_refused_naming_what_to_install(machine, version):
    machine.install("java", java(version))
    done = machine.need("java")
    assert done.returncode == 1
    assert "Java 17 is needed" in done.stderr
    assert "JAVA_HOME" in done.stderr


def test_missing_java_is_named(machine):
    done = machine.need("java")
    assert done.returncode == 1
    assert "no java is on the PATH" in done.stderr


def test_broken_java_is_refused(machine):
    machine.install("java", "exit 1")
    done = machine.need("java")
    assert done.returncode == 1
    assert "not a working Java" in done.stderr


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


def test_old_node_is_refused(machine):
    machine.install("node", "echo v18.19.0")
    done = machine.need("node")
    assert done.returncode == 1
    assert "Node 20 or later" in done.stderr


def test_node_20_is_used(machine):
    machine.install("node", "echo v20.20.2")
    assert machine.need("node").stdout.strip() == str(machine.path / "node")


def test_an_old_python_is_skipped(machine):
    machine.install("python3", "exit 1")
    machine.install("python3.12", "exit 0")
    assert machine.need("python").stdout.strip() == str(machine.path / "python3.12")


def test_only_old_pythons_are_refused_naming_what_to_install(machine):
    machine.install("python3", "exit 1")
    done = machine.need("python")
    assert done.returncode == 1
    assert "Python 3.11 or later is needed" in done.stderr


def test_python_without_venv_is_refused_naming_its_package(machine):
    machine.install("python3", 'case "$2" in *ensurepip*) exit 1 ;; esac')
    done = machine.need("python")
    assert done.returncode == 1
    assert "python3-venv" in done.stderr


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
