"""A small Iceberg REST catalog that stands in for Polaris on one machine."""
