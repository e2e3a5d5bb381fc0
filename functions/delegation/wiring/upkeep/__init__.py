"""The wiring of upkeep."""
