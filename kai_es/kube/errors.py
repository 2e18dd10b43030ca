"""What can be wrong with a cluster object."""


class InvalidObjectError(ValueError):
    """A cluster object that cannot be parsed; its version is parked with this text as reason.

    Args:
        what: kind and `namespace/name` of the object.
        problem: the field, its value, and what would be right.
    """

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")
        self.what = what
        self.problem = problem
