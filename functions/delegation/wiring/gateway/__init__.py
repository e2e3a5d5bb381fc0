"""The gateway in front of an unmodified catalog, from settings."""
