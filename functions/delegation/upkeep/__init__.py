"""Pull mode: the maintenance of tables that Polaris' policies ask for (docs/upkeep.md)."""
