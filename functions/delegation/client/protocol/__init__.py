"""What a client sends and what it makes of the answers, without any I/O; shared by both clients."""
