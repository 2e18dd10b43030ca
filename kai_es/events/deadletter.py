"""Records of the topic `deadletter`. Owner: whichever consumer could not process a record."""

import msgspec


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, tag="dead-letter"):
    """A version of a record that could not be processed. Key: the source record's key."""

    topic: str
    partition: int
    position: int
    key: str
    kind: str
    uid: str
    namespace: str
    name: str
    rv: int
    incarnation: int
    error: str
    value: bytes
