"""The scheduler's shell: take-over, gate, usage, read-your-writes, publish."""
