"""The sources of a rule: policies, table properties, Iceberg's properties and defaults, and the operator's limits."""
