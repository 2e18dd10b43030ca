import pytest

from kai_es.ports.errors import ConfigError
from kai_es.runtime.kafka_security import BEGIN, kafka_security


def security(**variables):
    return dict(kafka_security({BEGIN + name: value for name, value in variables.items()}))


def test_nothing_set_is_plain_text():
    assert security() == {}
    assert kafka_security({"KAI_ES_KAFKA": "b:9092", "HOME": "/"}) == {}


def test_empty_variables_count_as_none():
    assert security(PROTOCOL="", PASSWORD="", CA_FILE="") == {}


def test_log_in_over_tls(tmp_path):
    ca, password = tmp_path / "ca.pem", tmp_path / "password"
    ca.write_text("-")
    password.write_text("s3cret\n")
    assert security(
        PROTOCOL="sasl_ssl",
        MECHANISM="scram-sha-512",
        USERNAME="kai",
        PASSWORD_FILE=str(password),
        CA_FILE=str(ca),
        CHECK_HOSTNAME="false",
    ) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "kai",
        "sasl_plain_password": "s3cret",
        "ssl_cafile": str(ca),
        "ssl_check_hostname": False,
    }


def test_mechanism_is_plain_unless_told():
    found = security(PROTOCOL="SASL_PLAINTEXT", USERNAME="kai", PASSWORD="x")
    assert found["sasl_mechanism"] == "PLAIN"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PASSWORT": "x"}, "PASSWORT: no such setting; there are .*PASSWORD"),
        ({"PROTOCOL": "TLS"}, "PROTOCOL=TLS: want one of PLAINTEXT, SSL"),
        ({"PROTOCOL": "SSL", "CA_FILE": "/no/ca.pem"}, "CA_FILE=/no/ca.pem: No such file"),
        ({"PROTOCOL": "SSL", "CHECK_HOSTNAME": "no"}, "CHECK_HOSTNAME=no: want true or false"),
        ({"PROTOCOL": "SASL_SSL", "USERNAME": "kai"}, "set KAI_ES_KAFKA_SECURITY_PASSWORD too"),
        ({"USERNAME": "kai"}, "PLAINTEXT, which makes no use of the SASL settings.*SASL_SSL"),
        ({"PROTOCOL": "SASL_PLAINTEXT", "CHECK_HOSTNAME": "true"}, "no use of the SSL settings"),
    ],
)
def test_what_cannot_work_is_named(variables, words):
    with pytest.raises(ConfigError, match=words):
        security(**variables)
