"""What maintenance each table needs, by its metadata and its manifests, each of which is read once."""
