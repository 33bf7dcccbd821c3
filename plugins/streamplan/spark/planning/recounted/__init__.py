"""What the stores of a state hold, of all records at once: the parts of the recount that belong to one kind."""
