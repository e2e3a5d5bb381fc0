"""Rewrites of a table's files: compaction and manifests, by Iceberg's own actions."""
