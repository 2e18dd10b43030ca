"""Generated histories: what sources might say, in any interleaving; from a seed."""
