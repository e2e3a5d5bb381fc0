"""Recovery of a task table from a copy of an earlier time, such as one that DynamoDB restored."""
