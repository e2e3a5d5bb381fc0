"""Make the catalog `lake` in a new Polaris, for compose.yaml: run again, it changes nothing.

Source: Apache Polaris, polaris-management-service.yml, createCatalog and addGrantToCatalogRole.
"""

import os
import sys

import httpx

_POLARIS = "http://127.0.0.1:8181/api"
_STORAGE = {
    "storageType": "S3",
    "allowedLocations": ["s3://lake/"],
    "endpoint": "http://127.0.0.1:9000",
    "pathStyleAccess": True,
    "region": "us-east-1",
}


def make_catalog(client: httpx.Client, secret: str) -> str:
    """Create the catalog and grant its administrators its content; raises httpx.HTTPStatusError for a refused call."""
    form = {"grant_type": "client_credentials", "client_id": "root", "client_secret": secret}
    answer = client.post("catalog/v1/oauth/tokens", data={**form, "scope": "PRINCIPAL_ROLE:ALL"}).raise_for_status()
    client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
    catalog = {"name": "lake", "type": "INTERNAL", "properties": {"default-base-location": "s3://lake/wh"}}
    made = client.post("management/v1/catalogs", json={"catalog": {**catalog, "storageConfigInfo": _STORAGE}})
    if made.status_code != httpx.codes.CONFLICT:
        made.raise_for_status()
    grant = {"grant": {"type": "catalog", "privilege": "CATALOG_MANAGE_CONTENT"}}
    client.put("management/v1/catalogs/lake/catalog-roles/catalog_admin/grants", json=grant).raise_for_status()
    return "made" if made.is_success else "there already"


if __name__ == "__main__":
    with httpx.Client(base_url=_POLARIS, headers={"Polaris-Realm": "POLARIS"}, timeout=30) as polaris:
        sys.stdout.write(f"catalog lake: {make_catalog(polaris, os.environ['ROOT_SECRET'])}\n")
