"""What drives tasks on AWS: the steps of the state machine, dispatch, sweep, job runs (DESIGN §4)."""
