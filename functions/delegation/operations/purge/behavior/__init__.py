"""Where a purge meets the tasks: its parameters, its options, its outcome, and how it runs as a TaskBehavior."""
