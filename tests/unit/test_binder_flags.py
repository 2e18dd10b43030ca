"""The binder's settings from flags."""

import argparse
from pathlib import Path

import pytest

from kai_es.ports.errors import ConfigError
from kai_es.runtime.binding import add_binder_arguments, as_arguments, binder_settings, given
from kai_es.runtime.configuration import shard_configs
from kai_es.runtime.settings import Settings


def flags(*arguments):
    parser = argparse.ArgumentParser()
    add_binder_arguments(parser)
    return given(parser.parse_args(arguments))


def test_nothing_given_is_the_default():
    assert flags() == {}
    settings = binder_settings({})
    assert settings.reservation.namespace == "kai-resource-reservation"
    assert settings.reservation.timeout_s == 40
    assert settings.plugins["volumebinding"].arguments == {"bindTimeoutSeconds": "120"}


def test_flags_of_the_reference_are_read_and_passed_on():
    found = flags(
        "--resource-reservation-namespace=r",
        "--resource-reservation-allocation-timeout=7",
        '--resource-reservation-pod-resources={"requests": {"cpu": "1"}}',
        "--runtime-class-name=nvidia",
        "--fake-gpu-nodes",
        '--plugins={"hamicore": {"enabled": true}, "volumebinding": {"enabled": false}}',
    )
    assert flags(*as_arguments(found)) == found
    settings = binder_settings(found)
    reservation = settings.reservation
    assert (reservation.namespace, reservation.timeout_s) == ("r", 7)
    assert (reservation.runtime_class, reservation.fake_gpu) == ("nvidia", True)
    assert reservation.resources == {"requests": {"cpu": "1"}}
    assert settings.plugins["hamicore"].enabled
    assert settings.plugins["gpusharing"].priority == 100


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("--plugins=[]", "--plugins: failed to parse JSON"),
        ('--plugins={"gpusharing": {"priority": "high"}}', "binder plugin 'gpusharing'"),
        ("--resource-reservation-allocation-timeout=soon", "want a number of seconds"),
        ("--resource-reservation-pod-resources=x", "failed to parse JSON"),
    ],
)
def test_wrong_flag_is_named(argument, problem):
    with pytest.raises(ConfigError, match=problem):
        binder_settings(flags(argument))


def test_scheduler_has_the_label_of_reservation_pods_from_the_same_flag():
    flags = {"resource-reservation-app-label": "mine"}
    assert binder_settings(flags).reservation.app == "mine"
    for some, app in ((flags, "mine"), ({}, "kai-resource-reservation")):
        (config,) = shard_configs(Settings(data=Path(), binder=some))
        assert config["settings"]["reservation_app"] == app
