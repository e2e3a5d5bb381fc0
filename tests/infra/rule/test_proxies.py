"""Real nginx and Envoy, with the configurations of infra/rule, route every sample as the rule says, bytes unchanged.

`make gateway-rule` runs it with the Envoy of the registry and the nginx of the machine; the variables NGINX and ENVOY
name other programs. The load balancer itself cannot be run here: its rule is evaluated in test_rule_files.py.
"""

import http.client
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from infra.local.processes.programs import LOOPBACK, LoopbackServer, TetheredProcess, answers, free_port
from infra.rule.conditions import LISTENER_RULES
from tests.infra.rule.samples import SAMPLES, RuleSample
from tests.infra.rule.spellings import KEY, SpelledGateway, spelled

pytestmark = pytest.mark.long
ProxyWriter = Callable[[Path, int, int, int], list[str]]
"""Writes a proxy's configuration into a folder, for its port, Polaris' and the gateway's; returns the command."""


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler, str], tuple[int, dict[str, str], str]]) -> Iterator[int]:
    """A server that answers each request, whose target is read as it was sent, with its body."""

    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            status, headers, text = answer(self, body)
            self.send_response(status)
            data = text.encode()
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class' name
            """Print nothing."""

    server = LoopbackServer(ThreadingHTTPServer((LOOPBACK, 0), Request)).start()
    try:
        yield int(server.url.rpartition(":")[2])
    finally:
        server.stop()


def upstream(name: str) -> AbstractContextManager[int]:
    """A server that answers with its name and what it was sent."""

    def answer(request: BaseHTTPRequestHandler, body: str) -> tuple[int, dict[str, str], str]:
        seen = json.dumps({"name": name, "target": request.path, "headers": dict(request.headers), "body": body})
        return 200, {"X-Seen": seen}, seen

    return serving(answer)


def program(name: str) -> str:
    found = os.environ.get(name.upper()) or shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed; install it or set {name.upper()} (make gateway-rule)")
    return found


def write_nginx(folder: Path, port: int, polaris: int, gateway: int) -> list[str]:
    rule = LISTENER_RULES.with_name("nginx.conf").read_text(encoding="utf-8")
    rule = rule.replace("listen 8080;", f"listen {LOOPBACK}:{port};")
    temporary = "".join(
        f"{kind}_temp_path {folder / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\npid {folder / 'pid'};\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}"
        f"upstream polaris {{ server {LOOPBACK}:{polaris}; }}\nupstream gateway {{ server {LOOPBACK}:{gateway}; }}\n"
        f"{rule}\n}}\n",
        encoding="utf-8",
    )
    return [program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def write_envoy(folder: Path, port: int, polaris: int, gateway: int) -> list[str]:
    resources = yaml.safe_load(LISTENER_RULES.with_name("envoy.yaml").read_text(encoding="utf-8"))
    static = resources["static_resources"]
    listener = static["listeners"][0]["address"]["socket_address"]
    listener.update(address=LOOPBACK, port_value=port)
    for cluster, at in zip(static["clusters"], (polaris, gateway), strict=True):
        cluster["type"] = "STATIC"
        endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        endpoint["address"]["socket_address"].update(address=LOOPBACK, port_value=at)
    path = folder / "envoy.yaml"
    path.write_text(yaml.safe_dump(resources), encoding="utf-8")
    return [program("envoy"), "-c", str(path), "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]


def gateway_server(gateway: SpelledGateway) -> AbstractContextManager[int]:
    """The gateway itself as what the proxy leads to; API Gateway hands it the path as it was received."""

    def answer(request: BaseHTTPRequestHandler, _body: str) -> tuple[int, dict[str, str], str]:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "connection"}
        target = request.raw_requestline.decode("latin-1").split(" ")[1]
        found = gateway.serve(request.command, target, headers)
        return int(found["statusCode"]), {}, str(found["body"])

    return serving(answer)


@contextmanager
def proxied(write: ProxyWriter, folder: Path, polaris: int, gateway: int) -> Iterator[int]:
    """A proxy with its rule before two servers."""
    port = free_port()
    process = TetheredProcess.start(write(folder, port, polaris, gateway), env=os.environ, log=folder / "proxy.log")
    try:
        process.wait_until("the proxy", lambda: answers(port), timeout_seconds=20)
        yield port
    finally:
        process.stop()


PROXIES = pytest.mark.parametrize("write", [write_nginx, write_envoy], ids=["nginx", "envoy"])


@pytest.fixture(scope="module", params=[write_nginx, write_envoy], ids=["nginx", "envoy"])
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with ExitStack() as running:
        ports = [running.enter_context(upstream(name)) for name in ("polaris", "gateway")]
        yield running.enter_context(proxied(request.param, tmp_path_factory.mktemp("proxy"), *ports))


@PROXIES
def test_no_spelling_leads_through_a_real_proxy_out_of_the_base_or_to_a_second_record(
    write: ProxyWriter, tmp_path: Path
) -> None:
    gateway = SpelledGateway()
    with ExitStack() as running:
        ports = [running.enter_context(upstream("polaris")), running.enter_context(gateway_server(gateway))]
        port = running.enter_context(proxied(write, tmp_path, *ports))
        for method, target in spelled(seed=27, number=5000):
            with socket.create_connection((LOOPBACK, port), timeout=10) as connection:
                head = f"{method} {target} HTTP/1.1\r\nHost: catalog\r\nConnection: close\r\n{KEY[0]}: {KEY[1]}\r\n"
                connection.sendall(f"{head}Content-Length: 0\r\n\r\n".encode("latin-1"))
                assert connection.recv(65536).startswith(b"HTTP/1.1 ")
    gateway.check()
    assert sum(gateway.served.values()) > 1000


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_real_proxy_sends_only_the_requests_of_the_rule_to_the_gateway(
    proxy: int, sample: RuleSample, request: pytest.FixtureRequest
):
    connection = http.client.HTTPConnection(LOOPBACK, proxy, timeout=10)
    body = b'{"x": 1}' if sample.method == "POST" else None
    connection.request(sample.method, sample.target, body, dict(sample.headers))
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if "X-Seen" not in answer.headers:  # what is not below the base of the catalog is none of the location's here
        assert not sample.target.startswith("/api/catalog/")
        return
    seen = json.loads(answer.headers["X-Seen"])
    leads = sample.leads_to_gateway("nginx" if "nginx" in request.node.name else "envoy")
    assert seen["name"] == ("gateway" if leads else "polaris")
    assert seen["target"] == sample.target
    assert seen["body"] == (body or b"").decode()
    sent = {name.lower(): value for name, value in sample.headers if value.strip()}
    assert sent.items() <= {name.lower(): value for name, value in seen["headers"].items()}.items()
