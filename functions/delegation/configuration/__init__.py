"""Where a caller's settings come from: the environment, a profile of the configuration file, a local stack."""
