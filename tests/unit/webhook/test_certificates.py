import pytest
from cryptography import x509

from kintsugi.adapters.certificates import (
    LIFE_SECONDS,
    OVERLAP_SECONDS,
    RENEW_AT,
    CertificateUnreadable,
    make_pair,
    read_pair,
)

NAMES = ("kintsugi-webhook.ops.svc", "kintsugi-webhook.ops.svc.cluster.local")
NOW = 1_800_000_000.0
DAY = 86400.0


def test_a_pair_is_read_back_as_it_was_made() -> None:
    made = make_pair(NAMES, NOW)
    assert read_pair(made.certificate, made.key, made.all_authorities) == made
    assert (made.names, made.made_at, made.expires_at) == (NAMES, NOW, NOW + LIFE_SECONDS)


def test_its_authority_signs_nothing_else_and_its_key_is_nowhere() -> None:
    made = make_pair(NAMES, NOW)
    (authority,) = x509.load_pem_x509_certificates(made.all_authorities)
    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (limits.ca, limits.path_length) == (True, 0)
    assert made.key.count(b"PRIVATE KEY") == 2, "one key: a beginning and an end"
    leaf = x509.load_pem_x509_certificate(made.certificate)
    assert authority.public_key() != leaf.public_key()


def test_it_is_renewed_at_two_thirds_of_its_life() -> None:
    made = make_pair(NAMES, NOW)
    assert made.serves(NAMES, NOW + 59 * DAY)
    assert not made.serves(NAMES, NOW + 61 * DAY)


def test_a_clock_that_is_behind_replaces_nothing() -> None:
    assert make_pair(NAMES, NOW).serves(NAMES, NOW - 400 * DAY)


def test_another_name_needs_another_certificate() -> None:
    assert not make_pair(NAMES, NOW).serves(("other.ops.svc",), NOW)
    assert make_pair(NAMES, NOW).serves(NAMES[:1], NOW)


def test_the_authority_before_is_trusted_for_an_hour_more() -> None:
    first = make_pair(NAMES, NOW)
    second = make_pair(NAMES, NOW + 60 * DAY, first)
    third = make_pair(NAMES, NOW + 120 * DAY, second)
    assert second.trusted(NOW + 60 * DAY) == second.authorities[0] + first.authorities[0]
    assert second.trusted(NOW + 60 * DAY + OVERLAP_SECONDS) == second.authorities[0]
    assert third.authorities == (third.authorities[0], second.authorities[0]), "they don't pile up"


def test_an_authority_that_has_ended_is_not_carried_on() -> None:
    first = make_pair(NAMES, NOW)
    assert len(make_pair(NAMES, NOW + LIFE_SECONDS + DAY, first).authorities) == 1


def test_two_authorities_have_different_names_unless_made_in_one_second() -> None:
    first, second = make_pair(NAMES, NOW), make_pair(NAMES, NOW + 1)
    subjects = {x509.load_pem_x509_certificate(p.authorities[0]).subject for p in (first, second)}
    assert len(subjects) == 2


@pytest.mark.parametrize(
    ("certificate", "key", "authorities"),
    [
        (b"", b"", b""),
        (b"\xff\x00", b"\xff", b"\xff"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None, None),
        (None, b"", None),
        (None, None, b""),
        (None, None, "another"),
        (None, "another", None),
        ("another", None, None),
        (None, b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", None),
    ],
)
def test_what_does_not_belong_together_is_refused_with_a_reason(
    certificate: bytes | str | None, key: bytes | str | None, authorities: bytes | str | None
) -> None:
    good, other = make_pair(NAMES, NOW), make_pair(NAMES, NOW)
    given = [
        (of_good if piece is None else of_other if isinstance(piece, str) else piece)
        for piece, of_good, of_other in (
            (certificate, good.certificate, other.certificate),
            (key, good.key, other.key),
            (authorities, good.all_authorities, other.all_authorities),
        )
    ]
    with pytest.raises(CertificateUnreadable) as refusal:
        read_pair(*given)
    assert str(refusal.value)


def test_a_month_without_an_operator_is_survived() -> None:
    assert (1 - RENEW_AT) * LIFE_SECONDS >= 30 * DAY - 1
