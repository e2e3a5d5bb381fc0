"""How the commands lay out what they print."""
