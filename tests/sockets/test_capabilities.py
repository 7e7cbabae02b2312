"""Capabilities at CONNECT, and the rights they leave (semantics, *Capabilities*; SEC-REDS, 2.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from processes import from_file, on_uvloop
from sockets.acts import ALL, BOTH, PASSWORD, come, dismissed, go, inbox, payloads, policy, say, secure, user
from sockets.holding import (
    DEVICE,
    OTHER,
    Holder,
    answer,
    denied,
    gated,
    issuing,
    widened,
)
from tidegate import wire

READER = "read:angina/#"
WRITER = "write:angina/#"


# -- the logical AND -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [DEVICE, OTHER], ids=["Ed25519", "P-256"])
@on_uvloop
async def test_rights_are_those_of_the_capability_and_of_the_policies(tmp_path: Path, key: Any) -> None:
    """*Effective rights are the logical AND of capability and local policy.*"""
    policies = [policy("a", "angina/+"), policy("b", "other/#")]
    async with from_file(tmp_path, gated(tmp_path, *policies)) as node:
        holder = Holder("read,write:angina/#", "write:closed/#", key=key)
        mary, bob = await holder.come(node), await come(node, "bob")
        await bob.subscribe("angina/+", "other/#")
        assert await say(mary, "angina/1", qos=1) == 0
        assert await say(mary, "angina/1/2", qos=1) == 0x87  # the policies
        assert await say(mary, "closed/1", qos=1) == 0x87  # the policies
        assert await say(mary, "other/1", qos=1) == 0x87  # the capability
        for topic in ("angina/1", "other/1"):
            await say(mary, topic, b"fast")
            await say(mary, topic, b"fast")  # by a plan that is there already
        assert await payloads(bob) == [b"x", b"fast", b"fast"]
        assert await denied(node, holder.rule, "write")


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_it_narrows_what_is_open_to_everybody(tmp_path: Path, certificates: Path, version: int) -> None:
    """Also with `policies: open`."""
    text = gated(tmp_path, certificates=certificates, policies="open")
    async with from_file(tmp_path, text) as node:
        holder = Holder(READER)
        mary = await come(
            node,
            None,
            client="m",
            version=version,
            tls=secure(certificates),
            username="mary",
            password=holder.token.encode(),
        )
        bob, carol = await come(node, "bob", version=version), await come(node, "carol", version=version)
        suback = await mary.subscribe("angina/#", "other")
        assert suback.reasons == (0, 0x87 if version == wire.V5 else 0x80)
        await mary.subscribe("#")
        await bob.subscribe("#")
        await say(mary, "angina/1", b"mine", qos=1)
        for topic in ("angina/1", "other", "angina"):
            await say(carol, topic, topic.encode(), qos=1)
        assert await payloads(mary) == [b"angina/1", b"angina"]
        assert await payloads(bob) == [b"angina/1", b"other", b"angina"]
        assert await denied(node, holder.rule, "write")
        assert await denied(node, holder.rule, "read")


@on_uvloop
async def test_who_comes_without_one_is_judged_by_the_policies_alone(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        bob, carol = await come(node, "bob"), await come(node, "carol")
        await bob.subscribe("#")
        assert await say(carol, "other", qos=1) == 0
        assert len(await inbox(bob)) == 1


@on_uvloop
async def test_lanes_are_not_shared_with_others(tmp_path: Path) -> None:
    """Two who are alike but for what they hold, over the same plans."""
    async with from_file(tmp_path, gated(tmp_path, ALL)) as node:
        wide, narrow = Holder("write:#", subject="user:a"), Holder("write:mine", subject="user:b")
        bob = await come(node, "bob")
        await bob.subscribe("t")
        ends = [await wide.come(node, "1"), await narrow.come(node, "2"), await come(node, None, client="3")]
        for _ in range(2):
            for number, end in enumerate(ends):
                await say(end, "t", b"%d" % number)
        assert await payloads(bob) == [b"0", b"2", b"0", b"2"]


@on_uvloop
async def test_the_bogus_subscriber_is_defeated(tmp_path: Path, certificates: Path) -> None:
    """SEC-REDS, figure 2.10: only A may receive the publications of P, and B says that it is A."""
    only_a = [policy("p", "news", "write"), policy("a", "news", "read", subject="user:A")]
    async with from_file(tmp_path, gated(tmp_path, *only_a, certificates=certificates, required=True)) as node:
        a = Holder("read:news", subject="user:A", key=DEVICE)
        b = Holder("read:news", subject="user:B", key=OTHER)
        p = await Holder("write:news", subject="user:P").come(node, "p")
        good = await a.come(node, "a")
        assert (await good.subscribe("news")).reasons == (0,)
        # with its own capability it is B
        bogus = await b.come(node, "b")
        assert (await bogus.subscribe("news")).reasons == (0x87,)
        # with that of A, which it has seen: it has not the key
        thief = Holder("read:news", subject="user:A", key=OTHER, jti=a.id)
        thief.token = a.token
        await thief.come(node, "b", expect=0x87)
        await come(node, None, client="b", asks=a.shows(), expect=0x87)
        await come(node, None, client="b", asks=[("capability", a.token), thief.proof("connect", "b")], expect=0x87)
        # with one that it made itself, or changed
        await Holder("read:news", subject="user:A", key=OTHER, issuer=OTHER).come(node, "b", expect=0x87)
        b.token = widened(b.token, sub="user:A")
        await b.come(node, "b", expect=0x87)
        # or with none, saying that it is A
        await come(node, None, client="A", expect=0x87)
        await say(p, "news", b"secret", qos=1)
        assert await payloads(good) == [b"secret"]
        assert await inbox(bogus) == []
        assert await denied(node, "capability", "connect", "signed")
        assert await denied(node, a.rule, "connect", "challenge")
        assert await denied(node, a.rule, "connect", "TLS only")


# -- attributes and who it is --------------------------------------------------------------------------------------


@on_uvloop
async def test_attributes_count_where_the_directory_says_nothing(tmp_path: Path) -> None:
    rules = [policy("w", "#", "write"), policy("r", "t", "read", when="s.ward == 1")]
    people = {"users": {"mary": user(ward=2), "bob": user()}}
    async with from_file(tmp_path, gated(tmp_path, *rules, directory=people)) as node:
        bob = await come(node, "bob")
        ends = {
            name: await Holder("read:#", subject=f"user:{name}", attributes={"ward": 1}).come(node, name)
            for name in ("mary", "stranger", "bob2")
        }
        for end in ends.values():
            await end.subscribe("t", "#")
        await say(bob, "t", qos=1)
        assert [name for name, end in ends.items() if await inbox(end)] == ["stranger", "bob2"]


@on_uvloop
async def test_it_brings_no_roles_and_no_built_in_names(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        for name in ("user", "roles", "level", "client"):
            holder = Holder(attributes={name: "admin"})
            await holder.come(node, expect=0x87)
            assert await denied(node, holder.rule, "connect", f"`{name}`")


@on_uvloop
async def test_subjects_are_users_clients_or_both(tmp_path: Path) -> None:
    rules = [
        policy("w", "#", "write"),
        policy("m", "m", "read", subject="user:mary"),
        policy("c", "c", "read", subject="client:tr1"),
        policy("d", "d", "read", when="s.machine == 'treadmill'"),
    ]
    people = {"users": {"mary": user(), "bob": user()}, "clients": {"tr1": {"attributes": {"machine": "treadmill"}}}}
    cases = [("user:mary", "x", "m"), ("user:mary", "tr1", "m"), ("client:tr1", "tr1", "cd")]
    cases.append(("user:mary/client:tr1", "tr1", "mcd"))
    for subject, client, expected in cases:
        async with from_file(tmp_path, gated(tmp_path, *rules, directory=people)) as node:
            bob = await come(node, "bob")
            end = await Holder("read:#", subject=subject).come(node, client)
            await end.subscribe("m", "c", "d")
            for topic in "mcd":
                await say(bob, topic, topic.encode(), qos=1)
            assert b"".join(await payloads(end)).decode() == expected, subject


@on_uvloop
async def test_it_is_for_whoever_it_names(tmp_path: Path, certificates: Path) -> None:
    """Stolen: another client's, another user's, whatever else they prove."""
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        plain = secure(certificates)
        other = Holder(subject="client:tr1")
        await other.come(node, "tr2", expect=0x87)
        await other.come(node, "tr1")
        await come(node, None, client="tr2", tls=plain, asks=other.shows(), expect=0x87)
        assert await denied(node, other.rule, "connect", "another client")
        marys = Holder(subject="user:mary")
        await come(node, "bob", tls=plain, asks=marys.shows(), expect=0x87)  # by password
        await come(node, None, client="b", tls=secure(certificates, "bob"), asks=marys.shows(), expect=0x87)
        await come(node, None, client="b", tls=plain, username="bob", password=marys.token.encode(), expect=0x86)
        assert await denied(node, marys.rule, "connect", "another user")
        await come(node, "mary", tls=plain, asks=marys.shows())
        await come(node, None, client="b", tls=secure(certificates, "mary"), asks=marys.shows())
        await come(node, None, client="b", tls=plain, asks=marys.shows())
        assert not node.node._bugs


@on_uvloop
async def test_other_credentials_have_to_be_right_too(tmp_path: Path, certificates: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        holder = Holder()
        tls = secure(certificates)
        await come(
            node, None, client="m", tls=tls, username="mary", password=b"wrong", asks=holder.shows(), expect=0x86
        )
        await come(node, None, client="m", tls=tls, username="mary", password=PASSWORD, asks=holder.shows())


# -- how it is shown -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_in_clear_only_over_tls(tmp_path: Path, certificates: Path, version: int) -> None:
    """*without proof only over TLS*"""
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        holder = Holder()
        refused = 0x86 if version == wire.V5 else 4
        shown: dict[str, Any] = {"client": "m", "version": version, "username": "mary"}
        shown["password"] = holder.token.encode()
        await come(node, None, **shown, expect=refused)
        assert await denied(node, holder.rule, "connect", "TLS only")
        await come(node, None, **shown, tls=secure(certificates))
        if version == wire.V5:
            await come(node, None, client="m", asks=holder.shows(), expect=0x87)
            await come(node, None, client="m", asks=holder.shows(), tls=secure(certificates))
            del shown["username"]
            await come(node, None, **shown, tls=secure(certificates))


@on_uvloop
async def test_in_clear_with_a_proof_of_the_key(tmp_path: Path) -> None:
    """A CONNECT that was overheard is of no use to others."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder()
        shown = holder.shows("m")
        await come(node, None, client="m", asks=shown)
        await come(node, None, client="m", asks=shown, expect=0x87)
        assert await denied(node, holder.rule, "connect", "used before")
        await come(node, None, client="n", asks=holder.shows("m"), expect=0x87)
        await come(node, None, client="m", asks=holder.shows("m"))


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_a_client_without_a_user_shows_it_as_password(tmp_path: Path, certificates: Path, version: int) -> None:
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        holder = Holder(subject="client:tr1")
        for name in ("", "tr1"):
            await come(
                node,
                None,
                client="tr1",
                version=version,
                tls=secure(certificates),
                username=name,
                password=holder.token.encode(),
            )
        await come(
            node,
            None,
            client="tr1",
            version=version,
            tls=secure(certificates),
            username="mary",
            password=holder.token.encode(),
            expect=0x86 if version == wire.V5 else 4,
        )


@on_uvloop
async def test_the_challenge_is_of_this_connection(tmp_path: Path) -> None:
    """*Stolen, replayed*: an answer that was overheard does not answer another challenge."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder()
        first = await holder.begins(node)
        challenge = (await first.expect(wire.Auth)).properties.authentication_data or b""
        signed = holder.responds(challenge)
        await answer(first, signed)
        assert (await first.expect(wire.Connack)).reason == 0
        thief = await holder.begins(node)
        second = (await thief.expect(wire.Auth)).properties.authentication_data
        assert second != challenge
        await answer(thief, signed)
        assert (await thief.expect(wire.Connack)).reason == 0x87
        assert await thief.closed() == b""
        for key, client in ((OTHER, "mary"), (DEVICE, "eve")):
            end = await holder.begins(node)
            asked = (await end.expect(wire.Auth)).properties.authentication_data or b""
            await answer(end, holder.responds(asked, client, key))
            assert (await end.expect(wire.Connack)).reason == 0x87
        assert await denied(node, holder.rule, "connect", "challenge")
        await first.silent()


@pytest.mark.parametrize("data", [None, b"", b"x", b"\xff" * 9000, b"a.b.c"])
@on_uvloop
async def test_what_is_no_token(tmp_path: Path, data: bytes | None) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        end = await node.dial(node.port)
        properties = wire.Properties(authentication_method="tidegate-capability", authentication_data=data)
        await end.send(wire.Connect(version=5, client_id="c", clean_start=True, keep_alive=0, properties=properties))
        assert (await end.expect(wire.Connack)).reason == 0x87
        assert await denied(node, "capability", "connect")


@on_uvloop
async def test_several_at_once_are_refused(tmp_path: Path, certificates: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        wide, narrow = Holder(), Holder(READER)
        tls = secure(certificates)
        await come(node, None, client="m", tls=tls, asks=[*wide.shows(), *narrow.shows()], expect=0x87)
        both = {"username": "mary", "password": wide.token.encode()}
        await come(node, None, client="m", tls=tls, asks=narrow.shows(), **both, expect=0x87)
        await wide.come(node, asks=narrow.shows(), expect=0x87)


@on_uvloop
async def test_a_node_that_takes_none_says_so(tmp_path: Path, certificates: Path) -> None:
    from sockets.acts import setting

    async with from_file(tmp_path, setting(certificates=certificates)) as node:
        holder = Holder()
        await come(node, None, client="m", tls=secure(certificates), asks=holder.shows(), expect=0x87)
        await holder.come(node, expect=0x8C)
        assert await denied(node, "capability", "connect", "takes none")


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_everybody_needs_one_where_that_is_said(tmp_path: Path, version: int) -> None:
    refused = 0x87 if version == wire.V5 else 5
    async with from_file(tmp_path, gated(tmp_path)) as node:
        bob, nobody = await come(node, "bob", version=version), await come(node, None, version=version)
        holder = await Holder().come(node)
        await node.reload(gated(tmp_path, required=True))
        await dismissed(bob, 0x87)
        await dismissed(nobody, 0x87)
        await holder.silent()
        for name in ("bob", None):
            await come(node, name, client="b", version=version, expect=refused)
        assert await denied(node, "capability", "connect", "needs")


# -- wrong ones ----------------------------------------------------------------------------------------------------


def _wrong() -> dict[str, Holder]:
    return {
        "forged": Holder(issuer=OTHER),
        "of another issuer": Holder(iss="elsewhere"),
        "expired": Holder(lasts=-1.0),
        "not yet valid": Holder(nbf=4e9, exp=5e9),
        "without an end": Holder(exp=None),
        "without an id": Holder(jti=None),
    }


@pytest.mark.parametrize("how", _wrong())
@on_uvloop
async def test_wrong_ones_are_refused_however_they_are_shown(tmp_path: Path, certificates: Path, how: str) -> None:
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        holder, tls = _wrong()[how], secure(certificates)
        await holder.come(node, expect=0x87)
        await come(node, None, client="m", tls=tls, asks=holder.shows(), expect=0x87)
        await come(node, "mary", tls=tls, asks=holder.shows(), expect=0x87)  # though the password is right
        for version, reason in ((wire.V5, 0x86), (wire.V311, 4)):
            given = {"username": "mary", "password": holder.token.encode()}
            await come(node, None, client="m", version=version, tls=tls, **given, expect=reason)
        rule = holder.rule if how in ("expired", "not yet valid", "without an end") else "capability"
        assert await denied(node, rule, "connect")


@on_uvloop
async def test_a_widened_one_is_refused(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(READER)
        everything = [{"action": ["read", "write"], "topic": "#"}]
        for changed in ({"rights": everything}, {"exp": 4e9}, {"sub": "user:bob"}, {"proof": "none"}):
            end = await holder.begins(node, token=widened(holder.token, **changed))
            assert (await end.expect(wire.Connack)).reason == 0x87
        assert await denied(node, "capability", "connect", "signed")


# -- changes -------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_an_issuer_that_is_not_trusted_any_more(tmp_path: Path) -> None:
    """Its holders go; with another key of the same issuer they come again."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        mary, bob = await Holder().come(node), await come(node, "bob")
        await node.reload(gated(tmp_path))  # nothing has changed
        await mary.silent()
        newer = Ed25519PrivateKey.generate()
        await node.reload(gated(tmp_path, key=newer))
        await dismissed(mary, 0x87)
        await bob.silent()
        await Holder().come(node, expect=0x87)
        mary = await Holder(issuer=newer).come(node)
        from sockets.acts import setting

        await node.reload(setting())
        await dismissed(mary, 0x87)
        await bob.silent()


@on_uvloop
async def test_a_stricter_demand_ends_what_does_not_meet_it(tmp_path: Path, certificates: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        tls = secure(certificates)
        shown = {"username": "mary", "password": Holder().token.encode()}
        ends = [await come(node, None, client=f"{v}", version=v, tls=tls, **shown) for v in BOTH]
        proven = await Holder().come(node, "p")
        await node.reload(gated(tmp_path, certificates=certificates, proof="connect"))
        for end in ends:
            await dismissed(end, 0x87)
        await proven.silent()
        await come(node, None, client="n", tls=tls, asks=Holder().shows(), expect=0x87)
        await node.reload(gated(tmp_path, certificates=certificates, proof="per-message"))
        assert await say(proven, "t", qos=1) == 0x87
        await proven.silent()


@on_uvloop
async def test_a_fresh_one_on_the_same_connection(tmp_path: Path) -> None:
    """*re-authentication brings a fresh capability before the old one expires*"""
    async with from_file(tmp_path, gated(tmp_path, subscribe="hold")) as node:
        mary, bob = await Holder("read:a").come(node), await come(node, "bob")
        await say(bob, "b", b"kept", qos=1, retain=True)
        await mary.subscribe("a", "b")
        await say(bob, "b", b"1", qos=1)
        assert await inbox(mary) == []
        newer = Holder("read:b")
        success = await newer.again(mary)
        assert isinstance(success, wire.Auth)
        assert success.reason == 0
        assert await payloads(mary) == [b"kept"]  # what was held comes alive
        await say(bob, "a", b"2", qos=1)
        await say(bob, "b", b"3", qos=1)
        assert await payloads(mary) == [b"3"]
        for other in (Holder(subject="user:bob"), Holder(lasts=-1.0), Holder(issuer=OTHER)):
            end = await newer.come(node, "again")
            assert isinstance(refused := await other.again(end, "again"), wire.Disconnect)
            assert refused.reason == 0x87
        assert await denied(node, "capability", "connect", "signed")


@on_uvloop
async def test_a_session_resumes_with_what_the_new_connection_has(tmp_path: Path) -> None:
    """Queued under one capability, sent under another."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        mary, bob = await Holder("read:a", "read:b").come(node, stays=True), await come(node, "bob")
        await mary.subscribe("a", "b", qos=1)
        await go(node, mary)
        for topic in ("a", "b"):
            await say(bob, topic, topic.encode(), qos=1)
        narrow = Holder("read:a")
        mary = await narrow.come(node, stays=True)
        assert mary.connack.session_present
        assert await payloads(mary) == [b"a"]
        assert await denied(node, narrow.rule, "read")


@on_uvloop
async def test_retained_and_shared_messages(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        bob = await come(node, "bob")
        for topic in ("a", "b"):
            await say(bob, topic, topic.encode(), qos=1, retain=True)
        one, two = await Holder("read:a").come(node, "1"), await Holder("read:a", "read:b").come(node, "2")
        await one.subscribe("#")
        assert await payloads(one) == [b"a"]
        for end in (one, two):
            await end.subscribe("$share/g/#")
        for _ in range(4):
            await say(bob, "b", b"shared", qos=1)
        assert await payloads(one) == []  # the receiver is chosen among those that are allowed it
        assert await payloads(two) == [b"shared"] * 4


@pytest.mark.parametrize(("version", "refusal"), [(wire.V5, 0x87), (wire.V311, 5)])
@on_uvloop
async def test_a_will_outside_the_rights_refuses_the_connection(
    tmp_path: Path, certificates: Path, version: int, refusal: int
) -> None:
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        bob = await come(node, "bob")
        await bob.subscribe("#")
        holder = Holder("write:mine")
        given: dict[str, Any] = {"username": "mary", "password": holder.token.encode(), "version": version}
        for topic, expected in (("other", refusal), ("mine", 0)):
            will = wire.Will(topic=topic, payload=b"gone", qos=0, retain=False)
            end = await come(node, None, client="m", tls=secure(certificates), will=will, **given, expect=expected)
        assert await denied(node, holder.rule, "write")
        await go(node, end)
        assert [message.topic for message in await inbox(bob)] == ["mine"]


@on_uvloop
async def test_the_token_goes_no_further(tmp_path: Path) -> None:
    """Neither receivers nor the store see it."""
    async with from_file(tmp_path, gated(tmp_path, data=True)) as node:
        holder = Holder()
        mary, bob = await holder.come(node, stays=True), await come(node, "bob")
        await bob.subscribe("#")
        mine = ("own", "1")
        await say(mary, "t", b"x", mine, ("capability", holder.token), holder.write("t"), qos=1, retain=True)
        (message,) = await inbox(bob)
        assert message.properties.user_properties == (mine,)
        await go(node, mary)
    found = b"".join(file.read_bytes() for file in sorted((tmp_path / "data").rglob("*")) if file.is_file())
    assert holder.id.encode() in found
    assert holder.token.encode() not in found
    assert holder.token.encode()[:60] not in found


def test_the_configuration_names_what_is_wrong(tmp_path: Path) -> None:
    from sockets.acts import setting
    from tidegate.config import ConfigErrors, load

    cases: list[tuple[dict[str, Any], str]] = [
        ({"issuers": []}, "must not be empty"),
        ({"issuers": [{"name": "a"}]}, "has no keys"),
        ({"issuers": [{"name": "a", "keys": "nowhere.pem"}]}, "cannot be read"),
        ({"issuers": [{"name": "a", "jwks": "http://keys.example/jwks"}]}, "https"),
        ({**issuing(tmp_path), "proof": "always"}, "per-message"),
    ]
    for said, text in cases:
        file = tmp_path / "wrong.yaml"
        file.write_text(setting(capabilities=said).replace("PORT", "1883"))
        with pytest.raises(ConfigErrors, match=text):
            load(file)
    both = issuing(tmp_path)["issuers"] * 2
    file.write_text(setting(capabilities={"issuers": both}).replace("PORT", "1883"))
    with pytest.raises(ConfigErrors, match="again"):
        load(file)
