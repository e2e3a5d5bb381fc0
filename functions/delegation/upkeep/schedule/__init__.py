"""What runs next: needs, windows, budgets, and the choice; pure functions with the clock passed in."""
