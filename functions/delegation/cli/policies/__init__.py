"""`delegation policy …`."""
