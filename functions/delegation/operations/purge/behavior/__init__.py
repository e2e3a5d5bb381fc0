"""Purges as tasks: parameters, options, outcomes, and the TaskBehavior that runs them."""
