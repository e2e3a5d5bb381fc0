"""Requests, and whether each leads to the gateway: one table for every proxy that has the rule."""

from dataclasses import dataclass, field

BASE = "/api/catalog/v1"
TABLE = f"{BASE}/lake/namespaces/sales%1Feu/tables/orders"
OWN = "/api/catalog/polaris/v1/lake"
TOMBSTONE = "0123456789abcdef-1760000000000-aabbccdd"
KEY = (("Idempotency-Key", "0198f6a2-7f2e-7c3a-9b1d-3f6a2b7c9d10"),)


@dataclass(frozen=True, slots=True)
class RuleSample:
    """A request; `target` is that of the request line."""

    name: str
    method: str
    target: str
    to_gateway: bool
    headers: tuple[tuple[str, str], ...] = field(default=())
    nginx_misses: bool = False

    def leads_to_gateway(self, proxy: str) -> bool:
        """Whether a proxy leads it to the gateway."""
        return self.to_gateway and not (self.nginx_misses and proxy == "nginx")


SAMPLES = (
    RuleSample("config", "GET", f"{BASE}/config?warehouse=lake", True),
    RuleSample("config-without-warehouse", "GET", f"{BASE}/config", True),
    RuleSample("config-of-something-else", "GET", f"{BASE}/configuration", False),
    RuleSample("config-by-another-method", "POST", f"{BASE}/config", False),
    RuleSample("purge-by-java", "DELETE", f"{TABLE}?purgeRequested=true", True),
    RuleSample("purge-by-pyiceberg", "DELETE", f"{TABLE}?purgeRequested=True", True),
    RuleSample("purge-in-capitals", "DELETE", f"{TABLE}?purgeRequested=TRUE", True),
    RuleSample("purge-among-others", "DELETE", f"{TABLE}?a=b&purgeRequested=true&c=d", True),
    RuleSample("purge-without-prefix", "DELETE", f"{BASE}/namespaces/sales/tables/orders?purgeRequested=true", True),
    RuleSample("purge-with-key", "DELETE", f"{TABLE}?purgeRequested=true", True, KEY),
    RuleSample("drop-by-java", "DELETE", f"{TABLE}?purgeRequested=false", False),
    RuleSample("drop-by-pyiceberg", "DELETE", f"{TABLE}?purgeRequested=False", False),
    RuleSample("drop-without-query", "DELETE", TABLE, False),
    RuleSample("drop-truest", "DELETE", f"{TABLE}?purgeRequested=truest", False),
    RuleSample("drop-another-parameter", "DELETE", f"{TABLE}?notpurgeRequested=true", False),
    RuleSample("purge-of-a-namespace", "DELETE", f"{BASE}/lake/namespaces/sales?purgeRequested=true", False),
    RuleSample("post-with-purge", "POST", f"{TABLE}?purgeRequested=true", False),
    RuleSample("commit-with-key", "POST", TABLE, True, KEY),
    RuleSample("commit-with-key-in-lower-case", "POST", TABLE, True, (("idempotency-key", "k"),)),
    RuleSample("commit-without-key", "POST", TABLE, False),
    RuleSample("commit-with-empty-key", "POST", TABLE, True, (("Idempotency-Key", ""),), nginx_misses=True),
    RuleSample("commit-with-blank-key", "POST", TABLE, True, (("Idempotency-Key", " "),), nginx_misses=True),
    RuleSample("commit-with-tab-as-key", "POST", TABLE, True, (("Idempotency-Key", "\t"),)),
    RuleSample("policy-with-key", "PUT", f"{OWN}/namespaces/sales/policies/keep", True, KEY),
    RuleSample("policy-without-key", "PUT", f"{OWN}/namespaces/sales/policies/keep", False),
    RuleSample("generic-table-with-key", "POST", f"{OWN}/namespaces/sales/generic-tables", True, KEY),
    RuleSample("rename-with-key", "POST", f"{BASE}/lake/tables/rename", True, KEY),
    RuleSample("multi-table-commit-with-key", "POST", f"{BASE}/lake/transactions/commit", True, KEY),
    RuleSample("drop-view-with-key", "DELETE", f"{BASE}/lake/namespaces/sales/views/v", True, KEY),
    RuleSample("own-tombstones", "GET", f"{BASE}/tombstones?mine", True),
    RuleSample("own-tombstones-true", "GET", f"{BASE}/tombstones?page_size=9&mine=true", True),
    RuleSample("tombstones-of-all", "GET", f"{BASE}/tombstones", False),
    RuleSample("tombstones-minetest", "GET", f"{BASE}/tombstones?minetest=1", False),
    RuleSample("restore-own", "POST", f"{BASE}/tombstones/{TOMBSTONE}/restore", True),
    RuleSample("restore-by-get", "GET", f"{BASE}/tombstones/{TOMBSTONE}/restore", False),
    RuleSample("purge-of-a-tombstone", "POST", f"{BASE}/tombstones/{TOMBSTONE}/purge", False),
    RuleSample("load-with-key", "GET", f"{TABLE}?snapshots=all", False, KEY),
    RuleSample("exists-with-key", "HEAD", TABLE, False, KEY),
    RuleSample("load", "GET", f"{TABLE}?snapshots=all", False),
    RuleSample("token", "POST", f"{BASE}/oauth/tokens", False),
    RuleSample("management-with-key", "POST", "/api/management/v1/principals", False, KEY),
    RuleSample("other-header", "POST", TABLE, False, (("X-Idempotency-Key", "k"),)),
)
