"""docker-compose.yml against the command line and the settings that it uses."""

import re
from pathlib import Path

import pytest
import yaml

from kai_es.cli.main import load_commands, parser_of
from kai_es.runtime import kafka_security, settings
from kai_es.runtime.parts import NAMES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES = yaml.safe_load(TEXT)["services"]
OWN = {name: s for name, s in SERVICES.items() if s["image"].startswith("kai-es:")}


@pytest.fixture(scope="module")
def parser():
    return parser_of(load_commands())


@pytest.mark.parametrize("name", OWN)
def test_its_commands_are_commands(name, parser):
    service = OWN[name]
    argv = [*service.get("entrypoint", ["kai-es"])[1:], *service["command"]]
    args = parser.parse_args(argv)
    if args.command == "run":
        assert args.parts == [name.removeprefix("simulated-")]
        assert args.listen.endswith(":8080"), "the port that the health check asks"


def test_every_part_runs():
    parts = {part for s in OWN.values() if "run" in s["command"] for part in s["command"][1:2]}
    assert parts == set(NAMES)


def test_its_variables_are_in_the_example_and_nothing_else_is():
    used = set(re.findall(r"\$\{([A-Z_]+)", TEXT))
    example = (ROOT / ".env.example").read_text()
    assert set(re.findall(r"^#?([A-Z_]+)=", example, re.M)) == used | {"COMPOSE_PROFILES"}


def test_its_settings_are_settings():
    known = {value for name, value in vars(settings).items() if name.startswith("ENV_")}
    logins = {kafka_security.BEGIN + word for word in kafka_security._VARIABLES}
    for service in OWN.values():
        assert set(service["environment"]) <= known | logins | {"PGPASSWORD"}


def test_the_password_is_in_no_url():
    """There it would have to be percent-encoded, and compose cannot do that."""
    for service in OWN.values():
        environment = service["environment"]
        assert environment[settings.ENV_DATABASE] == "postgresql://kai_es@postgres:5432/kai_es"
        assert environment["PGPASSWORD"].startswith("${POSTGRES_PASSWORD:?")


def test_nothing_is_published_beyond_this_host():
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_what_a_service_waits_for_can_tell_that_it_is_there():
    for service in SERVICES.values():
        for other, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert SERVICES[other]["healthcheck"]["test"]
