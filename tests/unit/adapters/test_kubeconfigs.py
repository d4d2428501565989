"""Kubeconfigs that are damaged, and tokens that can't be sent: each an error in words, without the secret."""

import json
from pathlib import Path

import kubernetes.client
import kubernetes.config
import pytest

from kintsugi.adapters.kube.client import KubeClient, Request, load_configuration
from kintsugi.ports.errors import Unavailable


@pytest.mark.parametrize(
    "text", [b"a: [", b"[1,2]", b"hello", b"\xff\xfe\x00\x80", b"5", b"users: 5", b"", b"{}"]
)
def test_a_damaged_kubeconfig_is_an_error_that_names_the_file(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(text)
    with pytest.raises(kubernetes.config.ConfigException, match="kubeconfig"):
        load_configuration(str(file))


def kubeconfig_of(tmp_path: Path, user: dict[str, str]) -> Path:
    config = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:7777"}}],
        "users": [{"name": "u", "user": user}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


def test_a_key_that_is_no_base64_is_an_error_without_its_text(tmp_path: Path) -> None:
    file = kubeconfig_of(tmp_path, {"client-certificate-data": "s3cret", "client-key-data": "s3cret"})
    with pytest.raises(kubernetes.config.ConfigException, match="no base64") as raised:
        load_configuration(str(file))
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("token", ["s3cret\nmore", "s3cret\u20ac", "\ts3cret"])
def test_a_token_that_can_not_be_sent_is_an_error_without_its_text(tmp_path: Path, token: str) -> None:
    file = kubeconfig_of(tmp_path, {"token": token})
    with pytest.raises(kubernetes.config.ConfigException, match="token that can't be sent") as raised:
        load_configuration(str(file))
    assert "s3cret" not in str(raised.value)


async def test_a_token_that_turned_bad_is_unavailable_without_its_text() -> None:
    configuration = kubernetes.client.Configuration(host="http://127.0.0.1:9")
    configuration.api_key = {"authorization": "Bearer s3cret\nmore"}
    client = KubeClient(configuration)
    with pytest.raises(Unavailable, match="can't be sent") as raised:
        await client.call(Request("GET", "/api", "get", "api"))
    assert "s3cret" not in str(raised.value)
    await client.close()
