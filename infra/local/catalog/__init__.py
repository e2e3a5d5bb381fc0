"""A small Iceberg REST catalog that replaces Polaris on one machine."""
