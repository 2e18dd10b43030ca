import tempfile

import pytest

from kai_es.ports.errors import ConfigError
from kai_es.runtime.worker_place import ENV_INSTANCE, PLACES_MAX, take_place


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_workers_of_one_host_have_names_of_their_own_and_keep_them():
    first, second, other = (
        take_place("usage", "log", {}),
        take_place("usage", "log", {}),
        take_place("x", "log", {}),
    )
    assert len({first.instance, second.instance, other.instance}) == 3
    assert len({first.folder, second.folder, other.folder}) == 3
    first.lock.close()  # as its end does
    again = take_place("usage", "log", {})
    assert again[:2] == first[:2]
    for place in (second, other, again):
        place.lock.close()


def test_name_of_the_environment_is_taken_once():
    place = take_place("usage", "log", {ENV_INSTANCE: "books-7"})
    assert place.instance == "books-7-usage"
    with pytest.raises(ConfigError, match="KAI_ES_INSTANCE=books-7 is the name of another process"):
        take_place("usage", "log", {ENV_INSTANCE: "books-7"})
    elsewhere = take_place("usage", "another log", {ENV_INSTANCE: "books-7"})
    assert elsewhere.instance == place.instance
    for one in (place, elsewhere):
        one.lock.close()


def test_folder_that_cannot_be_used_is_said(tmp_path):
    for n in range(1, PLACES_MAX + 1):
        place = take_place("usage", "log", {})
        place.lock.close()
        (place.folder / "lock").unlink()
        (place.folder / "lock").mkdir()
        assert place.instance.endswith(f"-{n}-usage")
    with pytest.raises(ConfigError, match="set TMPDIR"):
        take_place("usage", "log", {})
