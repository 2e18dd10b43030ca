"""Why an expression has no value."""


class CelError(ValueError):
    """An expression that cannot be read, or has no value for a device; the text says why."""
