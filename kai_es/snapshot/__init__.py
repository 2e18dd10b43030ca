"""Rows to columns, kept up to date by each batch; ranking and life cycle of rows. Pure."""
