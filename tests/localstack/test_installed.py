"""What `make localstack-test` installs, and where LocalStack finds what it would download."""

import re
import zipfile
from xml.etree import ElementTree

from tests.localstack.server import JARS_POM, JSONATA_VERSION, manifest, place_downloads, variables
from tests.paths import ROOT

PINS = (ROOT / "tests" / "localstack" / "constraints.txt").read_text(encoding="utf-8").splitlines()


def test_every_package_of_localstacks_environment_is_pinned_by_version_alone():
    pins = [line for line in PINS if not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    assert "localstack-core==4.14.0" in pins


def test_the_jars_are_of_the_versions_that_localstack_looks_for():
    named = {each.tag.rpartition("}")[2]: each.text for each in ElementTree.parse(JARS_POM).iter()}
    versions = re.findall(r"<artifactId>jsonata</artifactId><version>([\d.]+)<", JARS_POM.read_text(encoding="utf-8"))
    assert named["artifactId"]
    assert versions == [JSONATA_VERSION]


def test_a_long_class_path_is_folded_into_lines_of_72_bytes():
    jars = [f"lib/artifact-{number}.jar" for number in range(40)]
    text = manifest("main.Class", jars)
    assert all(len(line) <= 72 for line in text.split("\r\n"))
    assert text.replace("\r\n ", "").split("\r\n")[2] == f"Class-Path: {' '.join(jars)}"


def test_dynamodb_local_java_and_jsonata_are_where_localstack_looks(tmp_path):
    dynamodb, others, java = tmp_path / "dynamodb", tmp_path / "others", tmp_path / "jdk" / "bin" / "java"
    for file in (
        dynamodb / "DynamoDBLocal-3.3.1.jar",
        dynamodb / "libsqlite4java-linux-amd64-1.0.392.so",
        others / "byte-buddy-agent-1.15.10.jar",
        others / "jsonata-0.9.7.jar",
        others / "jackson-core-2.16.2.jar",
        java,
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    place_downloads(tmp_path / "root", dynamodb=dynamodb, others=others, java_program=str(java))
    library = tmp_path / "root" / "var" / "lib" / "localstack" / "lib"
    server = library / "dynamodb-local" / "2"
    with zipfile.ZipFile(server / "DynamoDBLocal.jar") as archive:
        assert "DynamoDBLocal_lib/DynamoDBLocal-3.3.1.jar" in archive.read("META-INF/MANIFEST.MF").decode()
    assert (server / "DynamoDBLocal_lib" / "libsqlite4java-linux-amd64.so").exists()
    assert (server / "ddb-local-loader-0.1.jar").exists()
    assert (library / "java" / "21" / "bin" / "java").exists()
    assert sorted(jar.name for jar in (library / "jsonata" / "0.9.7").iterdir()) == [
        "jackson-core-2.16.2.jar",
        "jsonata-0.9.7.jar",
    ]


def test_localstack_listens_on_loopback_and_gets_nothing_of_this_machines_aws_settings(tmp_path):
    inherited = {"PATH": "/bin", "AWS_PROFILE": "production", "AWS_SECRET_ACCESS_KEY": "secret"}
    made = variables(inherited, port=4599, root=tmp_path, runtime=tmp_path / "python")
    assert made["GATEWAY_LISTEN"] == "127.0.0.1:4599"
    assert [name for name in made if name.startswith("AWS_")] == []
