"""Trust lists: subject based and certificate based trust, close and degrade (SEC-REDS 2.6.2, 2.6.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tidegate.errors import ConfigError
from tidegate.policy.levels import Levels, Transport
from tidegate.policy.trust_list import (
    By,
    Close,
    Degraded,
    Otherwise,
    Trust,
    Trusted,
    common_name,
    fingerprint,
    judged,
)

KEY = Ed25519PrivateKey.generate()


def certificate(name: x509.Name | str, serial: int = 1) -> bytes:
    subject = x509.Name.from_rfc4514_string(name) if isinstance(name, str) else name
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name.from_rfc4514_string("CN=ca"))
        .public_key(KEY.public_key())
        .serial_number(serial)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=1))
        .sign(KEY, None)
        .public_bytes(Encoding.DER)
    )


@pytest.mark.parametrize(
    ("listed", "shown", "trusted"),
    [
        ("CN=remotegym", "CN=remotegym", True),
        ("CN=remotegym", "CN=othergym", False),
        ("CN=remotegym", "CN=RemoteGym", True),
        ("CN=remote gym", "CN=remote   gym", True),
        ("cn=remotegym,O=MyGymBrand", "CN=remotegym,O=MyGymBrand", True),
        # more or fewer names are another subject
        ("CN=remotegym", "CN=remotegym,O=Evil", False),
        ("CN=remotegym,O=MyGymBrand", "CN=remotegym", False),
        ("CN=remotegym", "O=remotegym", False),
        # the order of relative names counts, inside one it does not
        ("CN=a,O=b", "O=b,CN=a", False),
        ("CN=a+OU=b", "OU=b+CN=a", True),
        ("OU=b+CN=a", "CN=a+OU=b", True),
        ("CN=a+OU=b", "CN=a,OU=b", False),
        # text that only looks alike
        (r"CN=a\,O=b", "CN=a,O=b", False),
        (r"CN=a\,O=b", r"CN=a\,O=b", True),
        (r"CN=a\2CO=b", r"CN=a\,O=b", True),
        ("CN=K", "CN=\u212a", False),  # the Kelvin sign
        ("CN=remotegym", "CN=\uff52emotegym", False),  # a wide r
        ("CN=strasse", "CN=straße", False),
    ],
)
def test_sec_reds_subject_based_trust(listed: str, shown: str, trusted: bool) -> None:
    outcome = Trust(By.SUBJECT, [listed], Otherwise.CLOSE).judge(certificate(shown))
    assert isinstance(outcome, Trusted if trusted else Close)
    if isinstance(outcome, Trusted):
        assert outcome.entry == listed


def test_a_listed_subject_has_any_certificate() -> None:
    trust = Trust(By.SUBJECT, ["CN=remotegym"])
    assert trust.judge(certificate("CN=remotegym", 1)) == trust.judge(certificate("CN=remotegym", 2))


def test_a_name_of_many_attributes_is_read_from_the_certificate() -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "IT"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "MyGymBrand, Inc."),
            x509.NameAttribute(NameOID.COMMON_NAME, "remotegym"),
        ]
    )
    trust = Trust(By.SUBJECT, [r"CN=remotegym,O=MyGymBrand\, Inc.,C=IT"])
    assert isinstance(trust.judge(certificate(name)), Trusted)


def test_sec_reds_certificate_based_trust() -> None:
    mine, other = certificate("CN=remotegym", 1), certificate("CN=remotegym", 2)
    hexadecimal = fingerprint(mine)
    colons = ":".join(hexadecimal[at : at + 2] for at in range(0, 64, 2)).upper()
    pem = x509.load_der_x509_certificate(mine).public_bytes(Encoding.PEM).decode()
    for text in (hexadecimal, colons, f"sha256:{hexadecimal}", pem):
        trust = Trust(By.CERTIFICATE, [text])
        assert isinstance(trust.judge(mine), Trusted)
        assert isinstance(trust.judge(other), Close)


@pytest.mark.parametrize("der", [None, certificate("CN=stranger"), b"", b"nonsense", certificate(x509.Name([]))])
def test_sec_reds_brutal_close_and_untrusted_degrade(der: bytes | None) -> None:
    for by, accept in ((By.SUBJECT, ["CN=remotegym"]), (By.CERTIFICATE, ["00" * 32])):
        assert isinstance(Trust(by, accept, Otherwise.CLOSE).judge(der), Close)
        assert isinstance(Trust(by, accept, Otherwise.DEGRADE).judge(der), Degraded)
        assert isinstance(Trust(by, [], Otherwise.CLOSE).judge(der), Close)


def test_the_level_that_follows() -> None:
    levels = Levels()
    facts = Transport(tls_version="TLSv1.3", certificate=True)
    assert levels.level_of(facts) == "mtls"
    assert levels.level_of(judged(facts, Trusted("CN=remotegym"))) == "trusted"
    assert levels.level_of(judged(facts, Degraded("not on the list"))) == "tls"


@pytest.mark.parametrize(
    ("by", "text", "says"),
    [
        (By.SUBJECT, "remotegym", "is no subject"),
        (By.SUBJECT, "", "empty subject"),
        (By.SUBJECT, "XX=a", "is no subject"),
        (By.CERTIFICATE, "CN=remotegym", "SHA-256"),
        (By.CERTIFICATE, "00" * 20, "SHA-256"),
        (By.CERTIFICATE, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
    ],
)
def test_errors_say_what_is_wrong(by: By, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Trust(by, [text])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=b", "b"),
        ("CN=b,O=x", "b"),
        (r"O=x\,CN=b,CN=evil", "evil"),
        ("CN=a+O=x", "a"),
        ("O=x", ""),
        ("CN=a,CN=b", ""),
    ],
)
def test_the_name_of_a_node_is_the_one_common_name_of_its_certificate(subject: str, name: str) -> None:
    assert common_name(certificate(subject)) == name
