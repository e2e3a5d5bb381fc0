"""What a drop does as its caller: requests in its name, what it has to prove, and the key of its request."""
