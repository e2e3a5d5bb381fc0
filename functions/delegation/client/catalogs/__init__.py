"""For clients of an Iceberg REST catalog behind the gateway."""
