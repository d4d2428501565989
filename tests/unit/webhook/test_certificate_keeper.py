"""The certificate over its life, on one replica and on two, with a Secret that goes and an API server that fails."""

import logging
import ssl
import time
from collections.abc import Callable

import pytest

from kintsugi.adapters.certificates import OVERLAP_SECONDS, make_pair
from kintsugi.ports.errors import Forbidden, Unavailable
from kintsugi.runtime.webhook_certificate import LOOK_SECONDS, SOON_SECONDS, CertificateKeeper
from kintsugi.testing.clock import SimulatedClock
from tests.unit.webhook.objects import NAME, NAMESPACE, Objects

DAY = 86400.0
NewKeeper = Callable[[], CertificateKeeper]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(time.time())


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def told() -> list[tuple[str, float]]:
    return []


@pytest.fixture
def keeper(objects: Objects, clock: SimulatedClock, told: list[tuple[str, float]]) -> CertificateKeeper:
    return another(objects, clock, told)


def another(
    objects: Objects, clock: SimulatedClock, told: list[tuple[str, float]] | None = None
) -> CertificateKeeper:
    """One more replica."""
    notes = told if told is not None else []
    return CertificateKeeper(objects, clock, NAMESPACE, NAME, lambda name, until: notes.append((name, until)))


async def settled(clock: SimulatedClock, *keepers: CertificateKeeper, seconds: float = 30.0) -> None:
    """All keepers look for so long, each when it wants to."""
    due = {id(each): 0.0 for each in keepers}
    for second in range(int(seconds) + 1):
        for each in keepers:
            while due[id(each)] <= second:
                due[id(each)] += await each.look()
        clock.move(1)


def served(keeper: CertificateKeeper, objects: Objects) -> bool:
    """Whether a client that trusts what the API server trusts completes a handshake with the keeper's context."""
    client = ssl.create_default_context(cadata=objects.trusted.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=f"{NAME}.{NAMESPACE}.svc")
    theirs = keeper.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        done = 0
        for side in (ours, theirs):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
        if done == 2:
            return True
    return False


@pytest.fixture(autouse=True)
def _begun_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS judges by the machine's clock: certificates of the simulated future are to have begun by it."""
    monkeypatch.setattr("kintsugi.adapters.certificates.SKEW_SECONDS", 400 * DAY)


async def test_at_first_it_is_made_shared_trusted_and_served(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper, told: list[tuple[str, float]]
) -> None:
    assert not keeper.ready
    await settled(clock, keeper)
    assert keeper.ready
    assert keeper.serving.is_set()
    assert objects.writes == ["create", "trust"]
    assert objects.trusted == objects.held("ca.crt")
    assert told == [(NAME, keeper.expires_at)]
    assert served(keeper, objects)


async def test_a_quiet_month_is_without_writes(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper
) -> None:
    await settled(clock, keeper)
    objects.writes.clear()
    for _ in range(30):
        clock.move(DAY)
        assert await keeper.look() == LOOK_SECONDS
    assert objects.writes in ([], ["trust"]), "at most the overlap of a certificate's first hour ends"


async def test_two_replicas_agree_on_whoever_was_first(objects: Objects, clock: SimulatedClock) -> None:
    first, second = another(objects, clock), another(objects, clock)
    await settled(clock, first, second)
    assert objects.writes == ["create", "trust"]
    assert served(first, objects)
    assert served(second, objects)


async def test_a_lost_race_for_the_secret_ends_with_the_winners_certificate(
    objects: Objects, clock: SimulatedClock
) -> None:
    slow, fast = another(objects, clock), another(objects, clock)
    seen = objects.secret
    await settled(clock, fast)

    async def outdated(namespace: str, name: str) -> None:
        assert seen is None

    real, objects.get_secret = objects.get_secret, outdated  # type: ignore[method-assign]
    assert await slow.look() == SOON_SECONDS
    objects.get_secret = real  # type: ignore[method-assign]
    await settled(clock, slow)
    assert objects.writes == ["create", "trust"]
    assert served(slow, objects)


async def test_renewal_is_seamless_on_both_replicas_and_needs_no_restart(
    objects: Objects, clock: SimulatedClock
) -> None:
    first, second = another(objects, clock), another(objects, clock)
    await settled(clock, first, second)
    before, until = objects.held("tls.crt"), first.expires_at
    clock.move(61 * DAY)
    objects.writes.clear()
    due = [0.0, 5.0]
    for passed in range(40):
        for place, each in enumerate((first, second)):
            while due[place] <= passed:
                due[place] += await each.look()
            assert served(each, objects), f"refused at second {passed}"
        clock.move(1)
    assert objects.writes == ["replace", "trust"]
    assert objects.held("tls.crt") != before
    assert first.expires_at == second.expires_at > until


async def test_the_old_authority_is_forgotten_an_hour_after(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper
) -> None:
    await settled(clock, keeper)
    clock.move(61 * DAY)
    await settled(clock, keeper)
    assert objects.trusted.count(b"BEGIN CERTIFICATE") == 2
    clock.move(OVERLAP_SECONDS)
    await settled(clock, keeper)
    assert objects.trusted.count(b"BEGIN CERTIFICATE") == 1
    assert served(keeper, objects)


async def test_a_secret_deleted_is_made_anew_and_nobody_is_refused_meanwhile(
    objects: Objects, clock: SimulatedClock
) -> None:
    first, second = another(objects, clock), another(objects, clock)
    await settled(clock, first, second)
    before = objects.held("tls.key")
    objects.secret = None
    for _ in range(30):
        await first.look()
        await second.look()
        assert served(first, objects)
        assert served(second, objects)
        clock.move(1)
    assert objects.held("tls.key") != before, "who deletes a key wants another"
    assert first.expires_at == second.expires_at


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt"])
async def test_a_secret_that_was_spoilt_is_written_anew(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper, key: str
) -> None:
    await settled(clock, keeper)
    assert objects.secret is not None
    for spoilt in ("", "no base64", "AAAA", None):
        objects.secret["data"][key] = spoilt
        await settled(clock, keeper)
        assert served(keeper, objects)
        assert objects.held("ca.crt").startswith(objects.trusted[:200])


async def test_authorities_taken_off_the_configuration_come_back(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper
) -> None:
    await settled(clock, keeper)
    assert objects.configuration is not None
    objects.configuration["webhooks"][0]["clientConfig"].pop("caBundle")
    await settled(clock, keeper, seconds=LOOK_SECONDS)
    assert served(keeper, objects)


async def test_a_new_configuration_is_trusted_and_owns_the_secret_without_a_new_certificate(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper
) -> None:
    await settled(clock, keeper)
    before = objects.held("tls.crt")
    objects.configure()
    await settled(clock, keeper)
    assert served(keeper, objects)
    assert objects.held("tls.crt") == before
    assert objects.secret is not None
    assert objects.configuration is not None
    (owner,) = objects.secret["metadata"]["ownerReferences"]
    assert owner["uid"] == objects.configuration["metadata"]["uid"]
    assert owner["kind"] == "ValidatingWebhookConfiguration"


async def test_an_owner_that_somebody_takes_away_again_is_not_fought_over(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper
) -> None:
    await settled(clock, keeper)
    for _ in range(5):
        assert objects.secret is not None
        objects.secret["metadata"].pop("ownerReferences", None)
        await settled(clock, keeper)
    assert objects.writes.count("replace") <= 1
    assert served(keeper, objects)


async def test_without_a_configuration_nothing_is_made_and_nothing_is_missing(
    clock: SimulatedClock, caplog: pytest.LogCaptureFixture
) -> None:
    bare = Objects(configured=False)
    keeper = another(bare, clock)
    with caplog.at_level(logging.WARNING):
        await settled(clock, keeper, seconds=60)
    assert keeper.ready
    assert bare.writes == []
    assert len(caplog.records) == 1, "said once"
    bare.configure()
    await settled(clock, keeper)
    assert served(keeper, bare)


async def test_an_api_server_that_does_not_answer_changes_nothing(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    await settled(clock, keeper)
    objects.trouble = Unavailable("no answer")
    with caplog.at_level(logging.WARNING):
        await settled(clock, keeper, seconds=300)
    assert keeper.ready
    assert served(keeper, objects)
    assert len(caplog.records) == 1, "said once"


async def test_a_right_that_is_missing_is_said_and_tried_again(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    objects.trouble = Forbidden("get secrets ops/kintsugi-webhook: 403")
    await settled(clock, keeper)
    assert not keeper.ready
    assert "403" in caplog.text
    objects.trouble = None
    await settled(clock, keeper)
    assert keeper.ready


async def test_a_replica_that_starts_after_a_renewal_serves_at_once(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper
) -> None:
    await settled(clock, keeper)
    late = another(objects, clock)
    await settled(clock, late, seconds=0)
    assert served(late, objects)


async def test_a_replica_whose_clock_is_days_behind_makes_no_war(objects: Objects) -> None:
    right, behind = SimulatedClock(time.time()), SimulatedClock(time.time())
    behind.jump(-400 * DAY)
    first, second = another(objects, right), another(objects, behind)
    for _ in range(50):
        await first.look()
        await second.look()
        right.move(1)
        behind.move(1)
    assert objects.writes == ["create", "trust"]
    assert served(first, objects)


async def test_a_certificate_of_another_release_of_the_same_secret_is_replaced(
    objects: Objects, clock: SimulatedClock, keeper: CertificateKeeper
) -> None:
    foreign = make_pair(("other.ops.svc",), clock.now())
    data = {"tls.crt": foreign.certificate, "tls.key": foreign.key, "ca.crt": foreign.all_authorities}
    await objects.create_secret(NAMESPACE, NAME, data, None)
    await settled(clock, keeper)
    assert served(keeper, objects)
