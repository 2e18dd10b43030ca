"""Protocols between services and adapters, with the errors adapters raise."""
