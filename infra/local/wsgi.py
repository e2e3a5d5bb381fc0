"""A WSGI application on a loopback port, served by threads of this process."""

import threading
from typing import TYPE_CHECKING, Self

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from infra.local.process import LOOPBACK

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Requests are not logged: their URLs and headers are the applications' own business."""


class WsgiServer:
    """Serves `app`, one thread per request; the port is bound at construction, so `url` is known before `start`."""

    def __init__(self, app: "WSGIApplication", *, port: int = 0) -> None:
        self._server: BaseWSGIServer = make_server(LOOPBACK, port, app, threaded=True, request_handler=_QuietHandler)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}"

    def start(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop serving and close the port; repeats safely."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()
