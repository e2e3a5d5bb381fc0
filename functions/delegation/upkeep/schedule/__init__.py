"""What runs next: needs, windows, budgets, and the choice; pure functions."""
