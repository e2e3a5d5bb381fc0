"""The health of tables: what maintenance each needs, from its metadata and from manifests that are read once."""
