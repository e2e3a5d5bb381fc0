"""Policies as Polaris 1.7 stores, attaches and inherits them."""
