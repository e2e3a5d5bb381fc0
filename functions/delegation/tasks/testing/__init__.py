"""For tests of behaviors: `TaskHarness` runs them in memory, on a clock moved by hand (docs/workers.md)."""

from delegation.tasks.testing.harness import START, Crash, MissingBehaviorError, NeverIdleError, TaskHarness

__all__ = ["START", "Crash", "MissingBehaviorError", "NeverIdleError", "TaskHarness"]
