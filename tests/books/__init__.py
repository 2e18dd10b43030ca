"""Histories, oracles and a store in memory for the tests of the books."""
