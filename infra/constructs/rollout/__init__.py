"""How a new version of a function takes over from the former."""
