"""The webhook's own certificate: made, read and judged here, with no authority whose key would have to be kept.

Each serving certificate is signed by an authority of its own, whose key is forgotten at once: who reads the Secret can
pose as the webhook until it is renewed, and sign nothing.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE_SECONDS: Final = 90 * 86400.0
RENEW_AT: Final = 2 / 3
"""Share of its life after which a certificate is renewed, cert-manager's own default."""
SKEW_SECONDS: Final = 86400.0
"""It is valid from a day before it was made: clocks of machines differ."""
OVERLAP_SECONDS: Final = 3600.0
"""For so long after a renewal the authority before it is trusted too: other replicas still serve by it."""


class CertificateUnreadable(ValueError):
    """What the Secret holds is no certificate with its key and its authority; the message says why."""


@dataclass(frozen=True, slots=True)
class ServingPair:
    """A certificate, its key, and the authorities by which it and the one before are known; all of it PEM."""

    certificate: bytes
    key: bytes
    authorities: tuple[bytes, ...]
    """Its own first."""
    names: tuple[str, ...]
    made_at: float
    """Epoch seconds."""
    expires_at: float
    """Epoch seconds."""

    @property
    def renew_at(self) -> float:
        """When it should be replaced, epoch seconds."""
        return self.made_at + RENEW_AT * (self.expires_at - self.made_at)

    @property
    def all_authorities(self) -> bytes:
        """As a Secret keeps them."""
        return b"".join(self.authorities)

    def trusted(self, now: float) -> bytes:
        """The authorities that the API server is to trust now: the one before only while replicas may still use it."""
        return self.all_authorities if now < self.made_at + OVERLAP_SECONDS else self.authorities[0]

    def serves(self, names: Sequence[str], now: float) -> bool:
        """Whether it needs no replacement: right names, and not near its end.

        One that begins in the future is left alone, or replicas with different clocks would replace each other's for ever.
        """
        return set(names) <= set(self.names) and now < self.renew_at


def make_pair(names: Sequence[str], now: float, previous: ServingPair | None = None) -> ServingPair:
    """A new certificate for these DNS names, valid from `now` (epoch seconds), and its authority."""
    begins = datetime.datetime.fromtimestamp(now - SKEW_SECONDS, datetime.UTC).replace(microsecond=0)
    ends = datetime.datetime.fromtimestamp(now + LIFE_SECONDS, datetime.UTC).replace(microsecond=0)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _named(f"kintsugi-webhook-ca-{begins:%Y%m%d%H%M%S}")

    def begun(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )

    authority = (
        begun(issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        begun(_named("kintsugi-webhook"), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    before = previous.authorities[:1] if previous is not None and previous.expires_at > now else ()
    return read_pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        authority.public_bytes(serialization.Encoding.PEM) + b"".join(before),
    )


def read_pair(certificate: bytes, key: bytes, authorities: bytes) -> ServingPair:
    """The pair that these PEM texts hold. Raises CertificateUnreadable where they don't belong together."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate)
        trusted = x509.load_pem_x509_certificates(authorities)
        private = serialization.load_pem_private_key(key, password=None)
        leaf.verify_directly_issued_by(trusted[0])
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise CertificateUnreadable(f"{type(error).__name__}: {error}".rstrip(": ")) from error
    if private.public_key() != leaf.public_key():
        raise CertificateUnreadable("the key is not the certificate's")
    return ServingPair(
        certificate=leaf.public_bytes(serialization.Encoding.PEM),
        key=key,
        authorities=tuple(each.public_bytes(serialization.Encoding.PEM) for each in trusted),
        names=_dns_names(leaf),
        made_at=leaf.not_valid_before_utc.timestamp() + SKEW_SECONDS,
        expires_at=leaf.not_valid_after_utc.timestamp(),
    )


def _dns_names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(found.value.get_values_for_type(x509.DNSName))


def _named(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
