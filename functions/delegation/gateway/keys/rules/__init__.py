"""How the catalog's state shows whether a mutation was applied: pure functions, one module for each family."""
