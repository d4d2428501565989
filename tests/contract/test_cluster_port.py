"""What `ClusterPort` promises of its objects, of the fake and of the real API server alike."""

import base64

import pytest

from kintsugi.adapters.kube.lease import Leadership
from kintsugi.core import names
from kintsugi.ports.errors import AlreadyExists, Conflict, Invalid, NotFound, PortError
from tests.contract.benches import Bench, Json, key_of
from tests.contract.manifests import (
    OURS,
    budget,
    deployment,
    remediation,
    service,
)


async def test_a_deployment_that_is_not_there_is_none(bench: Bench) -> None:
    assert await bench.port.get_deployment(key_of(bench)) is None
    assert await bench.port.get_remediation(bench.namespace, "none") is None


async def test_deployments_are_listed_with_their_kind(bench: Bench) -> None:
    await bench.put(deployment(bench))
    found = await bench.port.list_deployments()
    assert [(each["kind"], each["metadata"]["name"]) for each in found] == [(names.DEPLOYMENT_KIND, "chat")]


async def test_a_status_is_replaced_whole_and_nothing_else_is_touched(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    version = made["metadata"]["resourceVersion"]
    version = await bench.port.write_status(
        key_of(bench), {"observedGeneration": 1, "why": "because"}, version
    )
    version = await bench.port.write_status(key_of(bench), {"observedGeneration": 1}, version)
    held = await bench.port.get_deployment(key_of(bench))
    assert held is not None
    assert held["status"] == {"observedGeneration": 1}
    assert held["spec"] == made["spec"]
    assert held["metadata"]["labels"] == {"team": "a"}
    assert held["metadata"]["generation"] == 1
    assert held["metadata"]["resourceVersion"] == version


async def test_a_status_that_says_the_same_is_no_write(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    version = await bench.port.write_status(
        key_of(bench), {"observedGeneration": 1}, made["metadata"]["resourceVersion"]
    )
    assert await bench.port.write_status(key_of(bench), {"observedGeneration": 1}, version) == version


async def test_a_status_from_a_stale_view_is_a_conflict(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    await bench.edit(
        names.API_VERSION,
        names.DEPLOYMENT_PLURAL,
        names.DEPLOYMENT_KIND,
        "chat",
        {"metadata": {"labels": {"x": "y"}}},
    )
    with pytest.raises(Conflict):
        await bench.port.write_status(key_of(bench), {"why": "stale"}, made["metadata"]["resourceVersion"])


async def test_a_status_without_a_version_is_never_written(bench: Bench) -> None:
    await bench.put(deployment(bench))
    with pytest.raises(Conflict):
        await bench.port.write_status(key_of(bench), {"why": "blind"}, "")


async def test_a_status_of_nothing_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFound):
        await bench.port.write_status(key_of(bench), {}, "1")


async def test_a_status_field_outside_the_schema_is_dropped(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    await bench.port.write_status(
        key_of(bench), {"observedGeneration": 1, "noSuchField": 1}, made["metadata"]["resourceVersion"]
    )
    held = await bench.port.get_deployment(key_of(bench))
    assert held is not None
    assert held["status"] == {"observedGeneration": 1}


async def test_a_status_outside_its_bounds_is_refused(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    with pytest.raises(Invalid, match="observedGeneration"):
        await bench.port.write_status(
            key_of(bench), {"observedGeneration": "one"}, made["metadata"]["resourceVersion"]
        )


async def test_a_second_create_is_already_there(bench: Bench) -> None:
    first = await bench.port.create(remediation(bench, "chat-0001-1"))
    assert first["metadata"]["uid"]
    with pytest.raises(AlreadyExists):
        await bench.port.create(remediation(bench, "chat-0001-1"))


async def test_an_object_against_its_schema_is_invalid(bench: Bench) -> None:
    wrong = remediation(bench, "chat-0001-1")
    wrong["spec"]["remedy"] = "Pray"
    with pytest.raises(Invalid, match="remedy"):
        await bench.port.create(wrong)


async def test_a_kind_that_is_not_ours_is_invalid(bench: Bench) -> None:
    with pytest.raises(Invalid):
        await bench.port.delete("v1", "Namespace", "", bench.namespace, "uid")


async def test_remediation_names_come_by_deployment_and_its_status_is_its_own(bench: Bench) -> None:
    made = await bench.port.create(remediation(bench, "chat-0001-1"))
    other = remediation(bench, "other-0001-1")
    other["metadata"]["labels"] = {**OURS, names.DEPLOYMENT_LABEL: "other"}
    await bench.port.create(other)
    found = await bench.port.list_remediation_names(key_of(bench))
    assert found == [("chat-0001-1", made["metadata"]["creationTimestamp"])]
    await bench.port.write_remediation_status(
        bench.namespace, "chat-0001-1", {"phase": "Draining"}, made["metadata"]["resourceVersion"]
    )
    held = await bench.port.get_remediation(bench.namespace, "chat-0001-1")
    assert held is not None
    assert held["status"] == {"phase": "Draining"}
    with pytest.raises(Conflict):
        await bench.port.write_remediation_status(
            bench.namespace, "chat-0001-1", {"phase": "Done"}, made["metadata"]["resourceVersion"]
        )


async def test_apply_creates_then_does_nothing_then_takes_back_what_it_no_longer_says(bench: Bench) -> None:
    wanted = service(bench)
    wanted["metadata"]["annotations"] = {"kintsugi.dev/note": "a"}
    first = await bench.port.apply(wanted)
    second = await bench.port.apply(wanted)
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    await bench.edit(
        "v1", "services", "Service", "chat-short", {"metadata": {"annotations": {"theirs": "kept"}}}
    )
    third = await bench.port.apply(service(bench))
    assert third["metadata"]["annotations"] == {"theirs": "kept"}
    assert third["metadata"]["uid"] == first["metadata"]["uid"]


async def test_children_are_services_and_budgets_with_their_kind(bench: Bench) -> None:
    await bench.port.apply(service(bench))
    await bench.port.apply(budget(bench))
    foreign = service(bench)
    foreign["metadata"] |= {"name": "foreign", "labels": {}}
    await bench.put(foreign)
    found = await bench.port.list_children(key_of(bench))
    assert [(each["kind"], each["apiVersion"]) for each in found] == [
        ("Service", "v1"),
        ("PodDisruptionBudget", "policy/v1"),
    ]


async def test_of_two_candidates_one_leads_until_it_lets_go(bench: Bench) -> None:
    first, second = (
        Leadership(bench.port, bench.clock, bench.clock.now, bench.namespace, "kintsugi", name)
        for name in ("first", "second")
    )
    assert await first.keep()
    assert not await second.keep()
    assert await first.keep()
    await first.release()
    assert await second.keep()
    assert not await first.keep()


async def test_a_secret_gives_one_value_or_none(bench: Bench) -> None:
    await bench.put(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": bench.namespace, "name": "keys"},
            "data": {"token": base64.b64encode(b"s3cret\n").decode()},
        }
    )
    assert await bench.port.get_secret_value(bench.namespace, "keys", "token") == "s3cret"
    assert await bench.port.get_secret_value(bench.namespace, "keys", "other") is None
    assert await bench.port.get_secret_value(bench.namespace, "none", "token") is None


async def test_a_config_map_that_was_applied_is_read_back(bench: Bench) -> None:
    assert await bench.port.get_config_map(bench.namespace, "chat-kept") is None
    for text in ("first", "second"):
        await bench.port.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"namespace": bench.namespace, "name": "chat-kept"},
                "data": {"text": text},
            }
        )
        found = await bench.port.get_config_map(bench.namespace, "chat-kept")
        assert found is not None
        assert found["data"] == {"text": text}


async def test_a_lease_is_created_once_and_replaced_only_from_a_fresh_view(bench: Bench) -> None:
    lease: Json = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": bench.namespace, "name": "kintsugi"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    }
    assert await bench.port.get_lease(bench.namespace, "kintsugi") is None
    made = await bench.port.create(lease)
    with pytest.raises(AlreadyExists):
        await bench.port.create(lease)
    made["spec"]["holderIdentity"] = "b"
    after = await bench.port.replace_lease(made)
    assert after["spec"]["holderIdentity"] == "b"
    with pytest.raises(Conflict):
        await bench.port.replace_lease(made)


async def test_only_errors_of_the_port_are_raised(bench: Bench) -> None:
    with pytest.raises(PortError):
        await bench.port.create(
            {"kind": "Service", "apiVersion": "v1", "metadata": {"namespace": bench.namespace}}
        )
