"""Persistence of catalogs on a table store with single-row compare-and-set, after the NoSQL persistence proposal."""
