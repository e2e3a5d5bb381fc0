"""A WSGI application on a loopback port that runs in threads of this process."""

from typing import TYPE_CHECKING

from werkzeug.serving import WSGIRequestHandler, make_server

from infra.local.processes.loopback import LoopbackServer
from infra.local.processes.programs import LOOPBACK

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing, because URLs and headers may contain what must not be logged."""


class WsgiServer(LoopbackServer):
    """Serves `app`, one thread per request."""

    def __init__(self, app: "WSGIApplication", *, port: int = 0) -> None:
        super().__init__(make_server(LOOPBACK, port, app, threaded=True, request_handler=_QuietHandler))
