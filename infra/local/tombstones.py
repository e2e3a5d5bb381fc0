"""Creates the namespace into which the gateway renames tables, as `delegation polaris setup` does elsewhere."""

from collections.abc import Sequence

import httpx

from delegation.identifiers import encoded, encoded_query
from infra.local.backends import Polaris
from infra.local.errors import CannotStartError

_EXISTS = 409


def create_tombstone_namespace(polaris: Polaris, levels: Sequence[str]) -> None:
    """Create the namespace and those above it as the owner of tables; raises CannotStartError."""
    client_id, client_secret = polaris.owner
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": client_secret}
    with httpx.Client(base_url=polaris.url, headers={"Polaris-Realm": polaris.realm}, timeout=30) as http:
        try:
            issued = http.post("v1/oauth/tokens", data={**form, "scope": polaris.scope}).raise_for_status().json()
            http.headers["Authorization"] = f"Bearer {issued['access_token']}"
            query = encoded_query([("warehouse", polaris.warehouse)])
            config = http.get(f"v1/config?{query}").raise_for_status().json()
            prefix = {**config.get("defaults", {}), **config.get("overrides", {})}.get("prefix", polaris.warehouse)
            for count in range(1, len(levels) + 1):
                body = {"namespace": list(levels[:count]), "properties": {}}
                answer = http.post(f"v1/{encoded(prefix)}/namespaces", json=body)
                if answer.status_code != _EXISTS:
                    answer.raise_for_status()
        except httpx.HTTPError as error:
            name = ".".join(levels)
            raise CannotStartError(
                "the gateway",
                f"the namespace {name} for tombstones was not created ({type(error).__name__}); create it with "
                "`delegation polaris setup`, or let the owner create namespaces",
            ) from error
