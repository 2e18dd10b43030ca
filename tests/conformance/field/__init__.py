"""Faults that users of schedulers met, as stories with the right outcome."""
