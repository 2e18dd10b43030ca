import msgspec
import pytest
import zstandard

from kai_es.snapshot import checkpoint
from kai_es.snapshot.world import World
from tests.histories.builders import a_node, a_pod, fold, seen


def a_world():
    world = World()
    fold(world, seen(a_node()), seen(a_pod()))
    return world


def document(payload):
    return msgspec.msgpack.decode(zstandard.decompress(payload))


def packed(fields):
    return zstandard.compress(msgspec.msgpack.encode(fields))


def test_a_checkpoint_comes_back_equal():
    world = a_world()
    encoded = checkpoint.encode(world)
    again = checkpoint.decode(encoded.payload)
    assert checkpoint.digest(again) == encoded.digest == checkpoint.digest(world)
    assert (again.offset, again.time, again.chain.cursors) == (0, world.time, {("objects", 0): 2})


def test_an_empty_world_has_a_checkpoint():
    again = checkpoint.decode(checkpoint.encode(World()).payload)
    assert again.offset == -1


@pytest.mark.parametrize("payload", [b"", b"junk", zstandard.compress(b"junk")])
def test_junk_is_no_checkpoint(payload):
    with pytest.raises(checkpoint.CheckpointError, match="not a checkpoint"):
        checkpoint.decode(payload)


def test_a_changed_digest_is_found():
    fields = document(checkpoint.encode(a_world()).payload)
    with pytest.raises(checkpoint.CheckpointError, match="digest"):
        checkpoint.decode(packed(fields | {"digest": "00"}))


def test_a_newer_version_names_the_fix():
    fields = document(checkpoint.encode(a_world()).payload)
    with pytest.raises(checkpoint.CheckpointError, match="upgrade kai-es"):
        checkpoint.decode(packed(fields | {"version": checkpoint.VERSION + 1}))
