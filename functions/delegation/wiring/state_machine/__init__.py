"""What starts executions of the state machine."""
