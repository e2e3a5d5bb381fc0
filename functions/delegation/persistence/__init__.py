"""A catalog's persistence on any schemaless table store with single-row compare-and-set (nosql-persistence.txt).

backend.py is what a store must offer; memory.py and dynamodb.py offer it. Everything else is built on that alone.
"""
