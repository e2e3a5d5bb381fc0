"""What runs in a Spark job."""
