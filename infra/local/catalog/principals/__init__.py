"""Who may do what in the catalog: principals, roles, privileges, grants and tokens."""
