"""The whole platform as separate processes, killed on purpose, and what must hold afterwards."""
