"""Pull mode: table maintenance by Polaris' policies (docs/upkeep.md)."""
