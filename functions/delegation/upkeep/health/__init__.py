"""What maintenance each table needs, by its metadata and by manifests that are read once."""
