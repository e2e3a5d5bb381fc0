"""Where a rule comes from: policies, table properties, Iceberg's properties and defaults, and the operator's limits."""
