import subprocess
import sys

import pytest
from aiokafka.conn import collect_hosts
from faust.transport.drivers.aiokafka import server_list
from kafka.cluster import get_ip_port_afi
from yarl import URL

from kai_es.cli.main import main
from kai_es.events.catalogue import TOPICS
from kai_es.ports.errors import ConfigError
from kai_es.runtime.kafka_address import checked_prefix, checked_servers


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka:9092", ("kafka", 9092)),
        ("broker_1.kafka-headless.ns.svc.:65535", ("broker_1.kafka-headless.ns.svc.", 65535)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[::1]:9092", ("::1", 9092)),
        ("[2001:db8::7]:9092", ("2001:db8::7", 9092)),
    ],
)
def test_an_address_is_taken_as_all_clients_take_it(text, address):
    assert checked_servers(text, setting="--kafka") == text
    assert get_ip_port_afi(text)[:2] == address
    (fausts,) = server_list([URL(f"kafka://{text}")], 1)
    assert collect_hosts(fausts, randomize=False)[0][:2] == address


def test_blanks_between_addresses_are_left_out():
    assert checked_servers("a:1, b:2 ,[::1]:3", setting="--kafka") == "a:1,b:2,[::1]:3"


@pytest.mark.parametrize(
    "text",
    [
        *("nonsense", "host:", ":9092", "host:notaport", "host:0", "host:99999", "host:-1"),
        *("host:9092/x", "http://host:9092", "kafka://host:9092", "user@host:9092", "a b:9092"),
        *("::1:9092", "[::1]", "[::g]:9092", "[1::2::3]:9092", "a..b:1", f"{'a' * 64}:1"),
        *(",", "a:1,", ",a:1", "a:1,,b:2", "a:1,b", " ", "host:٩٠", "hóst:1"),
    ],
)
def test_what_is_no_address_is_refused_with_the_right_form(text):
    with pytest.raises(ConfigError, match=r"^--kafka .*; want HOST:PORT\[,HOST:PORT\]"):
        checked_servers(text, setting="--kafka")


def test_prefix_leaves_room_for_every_topic():
    longest = 249 - max(len(name) for name in TOPICS) - 1
    assert checked_prefix("k" * longest, setting="--prefix")
    for text in ("", "a/b", "a b", "ä", "a\n", "k" * (longest + 1)):
        with pytest.raises(ConfigError, match=r"^--prefix "):
            checked_prefix(text, setting="--prefix")


@pytest.mark.parametrize("command", [["log", "verify"], ["deadletter", "list"]])
def test_every_command_refuses_before_it_connects(command, capsys):
    assert main([*command, "--kafka", "host:notaport"]) == 2
    assert "--kafka 'host:notaport': " in capsys.readouterr().err
    assert main([*command, "--kafka", "host:1", "--prefix", "a/b"]) == 2
    assert "--prefix 'a/b': " in capsys.readouterr().err


def test_a_process_with_a_wrong_address_does_not_start():
    argv = [sys.executable, "-m", "kai_es.cli", "run", "usage", "--kafka", "host:0"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "kai-es run: --kafka 'host:0': there is no port 0" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_variable_is_named_when_it_says_so(monkeypatch, capsys):
    monkeypatch.setenv("KAI_ES_KAFKA", "a:1,b")
    monkeypatch.setenv("KAI_ES_TOPIC_PREFIX", "")
    assert main(["log", "verify"]) == 2
    assert "KAI_ES_KAFKA 'b' of 'a:1,b': " in capsys.readouterr().err
