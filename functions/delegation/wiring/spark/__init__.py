"""The Spark engine: its job runs, and what runs in one."""
