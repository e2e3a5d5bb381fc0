"""What a client sends, and what it makes of the answers: no input or output, shared by the blocking and asyncio client."""
