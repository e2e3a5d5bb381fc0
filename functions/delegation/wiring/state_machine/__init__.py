"""What starts executions of the state machine, and its steps that need no behavior."""
