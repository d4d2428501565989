"""What the adapter asks of an API server for the webhook's two objects."""

import base64
from typing import Any

import pytest

from kintsugi.adapters.kube.admission import WebhookObjects, is_owned, is_trusted, owner_of, secret_data
from kintsugi.adapters.kube.client import Json, Request
from kintsugi.ports.errors import NotFound

CONFIGURATION: Json = {
    "metadata": {"name": "hook", "uid": "u-1", "resourceVersion": "7"},
    "webhooks": [
        {"name": "a.kintsugi.dev", "rules": [1], "clientConfig": {"service": {"name": "hook"}}},
        {"name": "b.kintsugi.dev", "clientConfig": {"service": {"name": "hook"}, "caBundle": "b2xk"}},
    ],
}


class Client:
    """Stands in for the client: remembers requests, answers one object or NotFound."""

    def __init__(self, answer: Json | None = None) -> None:
        self.answer = answer
        self.seen: list[Request] = []

    async def call(self, request: Request) -> Json:
        self.seen.append(request)
        if self.answer is None:
            raise NotFound(str(request))
        return self.answer


def objects(client: Client) -> WebhookObjects:
    return WebhookObjects(client)  # type: ignore[arg-type]


async def test_authorities_are_written_and_nothing_else_of_the_configuration() -> None:
    client = Client({})
    await objects(client).trust(CONFIGURATION, b"pem")
    (request,) = client.seen
    assert request.method == "PATCH"
    assert request.path == "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hook"
    assert request.content_type == "application/strategic-merge-patch+json", "it merges webhooks by name"
    bundle = base64.b64encode(b"pem").decode()
    assert request.body == {
        "metadata": {"uid": "u-1"},
        "webhooks": [
            {"name": "a.kintsugi.dev", "clientConfig": {"caBundle": bundle}},
            {"name": "b.kintsugi.dev", "clientConfig": {"caBundle": bundle}},
        ],
    }


async def test_what_does_not_exist_is_none() -> None:
    assert await objects(Client()).get_configuration("hook") is None
    assert await objects(Client()).get_secret("ops", "hook") is None


async def test_a_new_secret_is_of_kubernetes_own_type_and_goes_with_the_configuration() -> None:
    client = Client({})
    await objects(client).create_secret("ops", "hook", {"tls.key": b"key"}, owner_of(CONFIGURATION))
    body: Any = client.seen[0].body
    assert (client.seen[0].method, client.seen[0].path) == ("POST", "/api/v1/namespaces/ops/secrets")
    assert body["type"] == "kubernetes.io/tls"
    assert secret_data(body) == {"tls.key": b"key"}
    assert is_owned(body, owner_of(CONFIGURATION))
    assert "blockOwnerDeletion" not in str(body), "which would need more rights"


async def test_a_secret_is_replaced_only_as_it_was_read_and_keeps_what_others_noted_on_it() -> None:
    client = Client({})
    read: Json = {
        "type": "Opaque",
        "metadata": {"namespace": "ops", "name": "hook", "resourceVersion": "9", "labels": {"team": "a"}},
        "data": {"old": "AA=="},
    }
    await objects(client).replace_secret(read, {"tls.key": b"key"}, None)
    body: Any = client.seen[0].body
    assert client.seen[0].method == "PUT"
    assert (body["metadata"], body["type"]) == (read["metadata"], "Opaque")
    assert secret_data(body) == {"tls.key": b"key"}


@pytest.mark.parametrize("data", [None, {}, {"tls.key": "no base64!"}, {"tls.key": None}, {"tls.key": 5}])
def test_data_that_is_none_is_left_out(data: Any) -> None:
    assert secret_data({"data": data}) == {}


def test_every_webhook_of_the_configuration_must_be_trusted() -> None:
    assert not is_trusted(CONFIGURATION, b"old")
    all_old = {**CONFIGURATION, "webhooks": CONFIGURATION["webhooks"][1:]}
    assert is_trusted(all_old, b"old")
    assert not is_trusted(all_old, b"new")
