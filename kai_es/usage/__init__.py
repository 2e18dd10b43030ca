"""Reports, decay queries, statements."""
