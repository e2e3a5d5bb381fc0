"""The catalog's HTTP server: Iceberg's REST API under `/api/catalog`, Polaris' own under `/api/management`."""

import gzip
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pydantic import SecretStr
from werkzeug.wrappers import Request, Response

from delegation.timestamps import utc_now
from infra.local.catalog.access import CATALOG_ID, AccessControl, Entity, LocalPrincipal, TokenBroker
from infra.local.catalog.entities import CatalogEntities
from infra.local.catalog.errors import RestError, bad_request, json_answer, no_such_route, outcome_unknown
from infra.local.catalog.layout import TableLayout, Warehouse
from infra.local.catalog.management import ManagementApi
from infra.local.catalog.metadata import CredentialVendor, MetadataFiles
from infra.local.catalog.policies import PolicyRoutes, PolicyStore
from infra.local.catalog.routes import CatalogRoutes, TableKeys
from infra.local.catalog.state import CatalogState, MemoryState
from infra.local.catalog.tables import LocalTables, LocalViews
from infra.local.processes.programs import WsgiServer
from infra.local.s3.requests import VendedKeys
from polaris_persistence.errors import CommitOutcomeUnknown, CommitUnknown

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sts import STSClient

BASE_PATH = "/api/catalog"
MANAGEMENT_PATH = "/api/management"


class LocalCatalog(WsgiServer):
    """One catalog named `name`, kept in `state`; its tables lie below `location` (an existing bucket) by default.

    `s3` and `sts` are clients of the emulated AWS with administrator's keys. Clients of the catalog get `s3_endpoint`,
    the S3 front that shares `keys`. `properties` may set Polaris' flags, all off by default. The principal `root` has
    the secret `root` and may use the management API; tests change grants through `access` on ids of `entities`,
    and have answers lost through `tables` and `policies`. It answers as Polaris 1.7, or as its `newer` successor.
    """

    def __init__(
        self,
        *,
        name: str,
        location: str,
        s3: "S3Client",
        sts: "STSClient",
        keys: VendedKeys,
        s3_endpoint: str,
        region: str,
        principals: Iterable[LocalPrincipal],
        root: SecretStr,
        realm: str = "POLARIS",
        allowed_locations: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        keys_lifetime: timedelta | None = None,
        token_lifetime: timedelta = timedelta(hours=1),
        credential_lifetime: timedelta = timedelta(hours=1),
        port: int = 0,
        clock: Callable[[], datetime] = utc_now,
        newer: bool = False,
        state: CatalogState | None = None,
    ) -> None:
        super().__init__(self, port=port)
        self.name = name
        self._realm = realm
        self.access = AccessControl(principals, root=root, clock=clock)
        self.tokens = TokenBroker(self.access, clock=clock, lifetime=token_lifetime)
        state = state or MemoryState()
        self.entities = CatalogEntities(state)
        now = int(clock().timestamp() * 1000)
        self.warehouse = Warehouse(
            Entity(CATALOG_ID, name, dict(properties or {}), now, now),
            location=location.rstrip("/"),
            s3_endpoint=s3_endpoint,
            region=region,
            allowed_locations=allowed_locations,
            clock=clock,
        )
        vendor = CredentialVendor(sts, keys, clock=clock, lifetime=credential_lifetime)
        files = MetadataFiles(s3)
        self.warehouse.newer = newer
        shared = (self.warehouse, self.entities, files, self.access, TableLayout(self.warehouse, self.entities))
        tables = self.tables = LocalTables(*shared, vendor)
        policies = self.policies = PolicyStore(state, newer=newer)
        table_keys = None if keys_lifetime is None else TableKeys(keys_lifetime, clock)
        self._routes = CatalogRoutes(
            self.warehouse, self.entities, tables, LocalViews(*shared), self.access, table_keys
        )
        self._policies = PolicyRoutes(name, self.entities, self.access, policies)
        self._management = ManagementApi(self.access, self.entities, self.warehouse, policies)

    @property
    def url(self) -> str:
        """The `uri` for Iceberg clients."""
        return super().url + BASE_PATH

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        try:
            response = self._answer(request)
        except RestError as error:
            response = json_answer(error.status, error.body())
        except (CommitUnknown, CommitOutcomeUnknown) as error:
            answer = outcome_unknown(str(error), newer=self.warehouse.newer)
            response = json_answer(answer.status, answer.body())
        except (KeyError, TypeError, ValueError) as error:
            # The body does not conform to the specification; the error's text names the field.
            response = json_answer(400, bad_request(f"Malformed request: {type(error).__name__} {error}").body())
        response.headers["X-Request-ID"] = request.headers.get("X-Request-ID") or str(uuid.uuid4())
        _compress(request, response)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        # The raw path, because decoding makes a slash in a name look like one between names.
        path = str(request.environ["REQUEST_URI"]).partition("?")[0]
        base = next((each for each in (BASE_PATH, MANAGEMENT_PATH) if path.startswith(f"{each}/")), None)
        version, *parts = [unquote(part) for part in path.removeprefix(f"{base}/").split("/")]
        own = (base, version) == (BASE_PATH, "polaris") and len(parts) > 0
        if own:
            version, *parts = parts
        if base is None or version != "v1" or not parts:
            return no_such_route(path)
        if request.headers.get("Polaris-Realm", self._realm) != self._realm:
            raise RestError(404, "MissingOrInvalidRealm", "Missing or invalid realm")
        if (base, request.method, parts) == (BASE_PATH, "POST", ["oauth", "tokens"]):
            return json_answer(*self.tokens.token(_token_form(request)))
        who = self.tokens.caller((request.headers.get("Authorization") or "").removeprefix("Bearer "))
        if who is None:
            return Response(b"", 401, {"WWW-Authenticate": "Bearer"})
        if own:
            return self._policies.answer(who, request, parts)
        return (self._routes if base == BASE_PATH else self._management).answer(who, request, parts)


def _token_form(request: Request) -> dict[str, str]:
    form = request.form.to_dict()
    if request.authorization is not None and request.authorization.type == "basic":
        form |= {
            "client_id": request.authorization.username or "",
            "client_secret": request.authorization.password or "",
        }
    return form


def _compress(request: Request, response: Response) -> None:
    """Compress the JSON body for a client that accepts gzip, as every HTTP library does."""
    content = response.get_data()
    if content and response.mimetype == "application/json" and request.accept_encodings["gzip"]:
        response.set_data(gzip.compress(content, compresslevel=1, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
