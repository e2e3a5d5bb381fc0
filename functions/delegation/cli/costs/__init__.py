"""What the service costs in a month, and the file of prices behind every estimate."""
