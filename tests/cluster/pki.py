"""The keys and certificates of one cluster, made anew for each start and worth nothing outside it."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(hours=1)


class Authority:
    """A certificate authority whose files lie in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kintsugi-local-cluster")])
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._write("ca", self._key, certificate)

    @property
    def certificate(self) -> Path:
        return self._folder / "ca.crt"

    def issue(
        self, file: str, common_name: str, *, organization: str | None = None, addresses: tuple[str, ...] = ()
    ) -> tuple[Path, Path]:
        """A certificate and key, as `file`.crt and `file`.key, for client and server.

        `addresses` are IP addresses or DNS names that it answers for.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization is not None:
            subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = (
            self._builder(x509.Name(subject), key.public_key())
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if addresses:
            names = x509.SubjectAlternativeName([_general_name(address) for address in addresses])
            builder = builder.add_extension(names, critical=False)
        return self._write(file, key, builder.sign(self._key, hashes.SHA256()))

    def token_key(self) -> tuple[Path, Path]:
        """The private and public key that sign ServiceAccount tokens."""
        key = ec.generate_private_key(ec.SECP256R1())
        private, public = self._folder / "tokens.key", self._folder / "tokens.pub"
        _write_private(private, key)
        public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        return private, public

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _LIFE)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )

    def _write(
        self, file: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> tuple[Path, Path]:
        private, public = self._folder / f"{file}.key", self._folder / f"{file}.crt"
        _write_private(private, key)
        public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return public, private


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
