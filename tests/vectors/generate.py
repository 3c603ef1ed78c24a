"""Write the frozen vectors of the formats in `relayer.wire`.

    python tests/vectors/generate.py            writes what is missing, refuses to change what is there
    python tests/vectors/generate.py --force    writes all anew: a change of format, which old data will not survive

A vector that changes without a new format version is a defect of the code, not of the vector.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from relayer.wire import codec as base64url
from relayer.wire import names, signing
from relayer.wire.codec import InvalidName, lp
from relayer.wire.sealed_keys import FleetKey, FleetList, SealedKey
from relayer.wire.sealing import ObjectType, RootKeys, SealingKey, context, derive, seal
from relayer.wire.signing import (
    SEALED_TYPE,
    Certificate,
    Prover,
    Right,
    answer_key,
    answered_request,
    seal_body,
)

HERE = Path(__file__).parent
ROOT = RootKeys(bytes(range(32)))
OTHER_ROOT = RootKeys(bytes(range(32, 64)))
RELAYER = SigningKey(bytes([9]) * 32)
FLEET = PrivateKey(bytes([7]) * 32)
NOW = 1_767_225_600
SERIAL = bytes(range(16))

P = 2**255 - 19
IDENTITY = (1).to_bytes(32, "little")
BASE_POINT = bytes.fromhex("58" + "66" * 31)
# With the neutral element as public key, S*B = R + h*A holds for R = B, S = 1 and every message.
FORGERY = BASE_POINT + (1).to_bytes(32, "little")
ORDER = 2**252 + 27742317777372353535851937790883648493


def _signed(point: int, sign: int) -> bytes:
    return (point | sign << 255).to_bytes(32, "little")


ED25519_BAD_KEYS = {
    "neutral element": IDENTITY,
    "neutral element, sign bit set": _signed(1, 1),
    "neutral element, not canonical (p + 1)": _signed(P + 1, 0),
    "order 2": _signed(P - 1, 0),
    "order 4": bytes(32),
    "order 4, not canonical (p)": _signed(P, 0),
    "order 8": bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    "order 8, the other": bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    "not canonical (p + 3)": _signed(P + 3, 0),
    "no point of the curve": bytes([2]) + bytes(31),
}
X25519_BAD_KEYS = {
    "zero": bytes(32),
    "one": IDENTITY,
    "order 8": bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    "order 8, the other": bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    "order 2": _signed(P - 1, 0),
    "not canonical (p)": _signed(P, 0),
    "not canonical (p + 1)": _signed(P + 1, 0),
}


def derivation() -> dict:
    agents = []
    for name in ("default", "researcher", names.normalise("Ünïcode Näme!")):
        keys = ROOT.agent(name)
        agents.append(
            {
                "agent": name,
                "secret": keys.secret.hex(),
                "public_key": bytes(keys.identity.verify_key).hex(),
                "outbox_key": keys.outbox_key.hex(),
                "namespace_secrets": [
                    {
                        "namespace": namespace,
                        "generation": generation,
                        "secret": keys.namespace_secret(namespace, generation).hex(),
                    }
                    for namespace, generation in ((name, 1), (name, 2), (f"{name}/sender-42", 1))
                ],
            }
        )
    fields = ["a", "é", 0, 2**64 - 1, ["x", "y"], [], [["deep"]], ""]
    return {
        "root": ROOT.root.hex(),
        "account_public_key": bytes(ROOT.account_identity.verify_key).hex(),
        "account": ROOT.account,
        "agents": agents,
        "shared": [{"scope": "team", "generation": 1, "secret": ROOT.shared_secret("team", 1).hex()}],
        "lp": [
            {"fields": fields[:count], "encoded": lp(*fields[:count]).hex()}
            for count in range(len(fields) + 1)
        ],
        "hkdf": {
            "secret": "00" * 32,
            "label": ["a", 1],
            "salt": "ff",
            "okm": derive(bytes(32), "a", 1, salt=b"\xff", length=64).hex(),
        },
        "malformed_secrets": [
            "",
            "00",
            "zz" * 32,
            "00" * 31,
            "00" * 33,
            "A" * 42,
            "A" * 44,
            "0x" + "00" * 32,
            "\u0660" * 64,
        ],
    }


def names_() -> dict:
    given = [
        "researcher",
        " Researcher ",
        "\uff32\uff25\uff33\uff25\uff21\uff32\uff23\uff28\uff25\uff32",
        "a/b",
        "a:b",
        "ß",
        "İ",
        "用户",
        "a" * 64,
        "a" * 65,
        "_h_x",
        "..",
        "*",
        "a b",
        "Ⅷ",
        "x" * 1024,
    ]
    invalid = ["", "   ", "\u3000", "x" * 1025, "\ud800"]
    for text in invalid:
        try:
            names.normalise(text)
        except InvalidName:
            continue
        raise AssertionError(text)
    return {
        "normal": [{"given": text, "normal": names.normalise(text)} for text in given],
        "invalid": invalid,
        "namespaces": ["a", "a/b", "a/b/c/d", f"a/{names.normalise('ü')}"],
        "not_namespaces": [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            "a/b/c/d/e",
            "A",
            "a/B",
            "a/*",
            "*",
            "a.b",
            "a\n",
            "a/..",
            "_h_x_" + "0" * 63,
            "é",
            "a" * 65,
        ],
        "grants": [
            {"pattern": pattern, "namespace": namespace, "granted": granted}
            for pattern, namespace, granted in (
                ("researcher", "researcher", True),
                ("researcher", "researcher/x", False),
                ("researcher", "researchers", False),
                ("researcher/*", "researcher/x", True),
                ("researcher/*", "researcher/x/y", True),
                ("researcher/*", "researcher", False),
                ("researcher/*", "researchers/x", False),
                ("researcher/*", "coder/x", False),
            )
        ],
    }


def sealing() -> dict:
    key = SealingKey(bytes(range(16)), bytes(range(32)))
    other = SealingKey(bytes(range(16)), bytes(range(1, 33)))
    renamed = SealingKey(bytes(16), key.secret)
    place = context(ObjectType.RECORD, ROOT.account, b"incarnation-0001", b"object-000000001")
    elsewhere = context(ObjectType.RECORD, OTHER_ROOT.account, b"incarnation-0001", b"object-000000001")
    sealed = seal(key, ObjectType.RECORD, place, b"a memory", salt=bytes(range(32)))
    sealed_list = bytearray(sealed)

    def opened(why: str, **changed) -> dict:
        base = {
            "key_id": key.key_id.hex(),
            "key": key.secret.hex(),
            "type": 1,
            "place": place.hex(),
            "sealed": sealed.hex(),
        }
        return {"why": why, **base, **changed}

    def patched(at: int, value: int) -> str:
        copy = bytearray(sealed_list)
        copy[at] = value
        return copy.hex()

    return {
        "opens": [
            {**opened("as sealed"), "plaintext": b"a memory".hex()},
            {
                **opened("empty", sealed=seal(key, ObjectType.RECORD, place, b"", salt=bytes(32)).hex()),
                "plaintext": "",
            },
        ],
        "does_not_open": [
            opened("another key", key=other.secret.hex()),
            opened("another key id", key_id=renamed.key_id.hex()),
            opened("another account's place", place=elsewhere.hex()),
            opened("another type", type=2),
            opened("magic", sealed=patched(0, 0x4E)),
            opened("version", sealed=patched(4, 2)),
            opened("type byte", sealed=patched(5, 2)),
            opened("suite", sealed=patched(7, 2)),
            opened("key id bytes", sealed=patched(8, 0xFF)),
            opened("salt", sealed=patched(24, 0xFF)),
            opened("commitment", sealed=patched(56, sealed[56] ^ 1)),
            opened("ciphertext", sealed=patched(88, sealed[88] ^ 1)),
            opened("tag", sealed=patched(len(sealed) - 1, sealed[-1] ^ 0x80)),
            opened("truncated", sealed=sealed[:-1].hex()),
            opened("header alone", sealed=sealed[:88].hex()),
            opened("a byte more", sealed=(sealed + b"\0").hex()),
            opened("nothing", sealed=""),
        ],
    }


def sealed_keys() -> dict:
    agent = ROOT.agent("researcher")
    agent_key = bytes(agent.identity.verify_key)

    def made(**changed) -> SealedKey:
        fields = {
            "account": ROOT.account,
            "agent_key": agent_key,
            "namespace": "researcher",
            "generation": 1,
            "not_after": NOW + 600,
            "secret": agent.namespace_secret("researcher", 1),
        }
        return SealedKey(**{**fields, **changed})

    def plain(*fields) -> str:
        from nacl.public import SealedBox

        from relayer.wire.sealed_keys import fleet_key_id

        public = bytes(FLEET.public_key)
        return (fleet_key_id(public) + SealedBox(FLEET.public_key).encrypt(lp(*fields))).hex()

    good = made().seal(bytes(FLEET.public_key))
    rest = (ROOT.account, agent_key, "researcher", 1, bytes(32), NOW + 600)
    flipped = good[:-1] + bytes((good[-1] ^ 1,))
    return {
        "fleet_private_key": bytes(FLEET).hex(),
        "opens": [
            {
                "sealed": good.hex(),
                "secret": agent.namespace_secret("researcher", 1).hex(),
                "namespace": "researcher",
                "generation": 1,
                "account": ROOT.account,
                "agent_key": agent_key.hex(),
                "not_after": NOW + 600,
            },
            {
                "sealed": made(secret=b"").seal(bytes(FLEET.public_key)).hex(),
                "secret": "",
                "namespace": "researcher",
                "generation": 1,
                "account": ROOT.account,
                "agent_key": agent_key.hex(),
                "not_after": NOW + 600,
            },
        ],
        "does_not_open": [
            {
                "why": "for another fleet key",
                "sealed": made().seal(bytes(PrivateKey(bytes([8]) * 32).public_key)).hex(),
            },
            {"why": "flipped", "sealed": flipped.hex()},
            {"why": "truncated", "sealed": good[:-1].hex()},
            {"why": "the id alone", "sealed": good[:8].hex()},
            {"why": "nothing", "sealed": ""},
            {"why": "too long", "sealed": (good + bytes(1025)).hex()},
            {"why": "version 2", "sealed": plain(2, *rest)},
            {"why": "secret of 31 bytes", "sealed": plain(1, *rest[:4], bytes(31), NOW)},
            {"why": "agent key of 31 bytes", "sealed": plain(1, ROOT.account, bytes(31), *rest[2:])},
            {
                "why": "a name that is not normal",
                "sealed": plain(1, ROOT.account, agent_key, "Researcher", *rest[3:]),
            },
            {
                "why": "a name with a wildcard",
                "sealed": plain(1, ROOT.account, agent_key, "researcher/*", *rest[3:]),
            },
            {"why": "a field more", "sealed": plain(1, *rest, b"")},
            {"why": "a field less", "sealed": plain(1, *rest[:-1])},
        ],
        "unusable_fleet_keys": [{"why": why, "key": key.hex()} for why, key in X25519_BAD_KEYS.items()],
    }


def _certificate(**changed) -> Certificate:
    agent = ROOT.agent("researcher")
    fields = {
        "account_key": bytes(ROOT.account_identity.verify_key),
        "agent": "researcher",
        "agent_key": bytes(agent.identity.verify_key),
        "namespaces": ("researcher", "researcher/*"),
        "rights": (Right.READ, Right.WRITE),
        "not_before": NOW,
        "not_after": NOW + 86_400,
        "serial": SERIAL,
    }
    return Certificate(**{**fields, **changed})


def certificates() -> dict:
    identity = ROOT.account_identity
    good = _certificate().issue(identity)
    body = _certificate()._body()
    signature = identity.sign(body).signature
    not_canonical = signature[:32] + (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")

    def raw(**changed) -> str:
        return _certificate(**changed).issue(identity).hex()

    def fields(*values) -> str:
        encoded = lp(*values)
        return lp(encoded, identity.sign(encoded).signature).hex()

    key, agent_key = bytes(identity.verify_key), bytes(ROOT.agent("researcher").identity.verify_key)
    head = ("memrelay/v1/certificate", key, "researcher", agent_key)
    tail = (NOW, NOW + 1, SERIAL)
    malformed = {
        "nothing": "",
        "too long": "00" * 2049,
        "truncated": good[:-1].hex(),
        "a byte more": (good + b"\0").hex(),
        "another label": fields("memrelay/v1/request", *head[1:], ("researcher",), ("read",), *tail),
        "a right that is none": fields(*head, ("researcher",), ("root",), *tail),
        "no namespaces": fields(*head, (), ("read",), *tail),
        "17 namespaces": fields(*head, ("researcher",) * 17, ("read",), *tail),
        "an agent that is not normal": raw(agent="Researcher"),
        "a pattern that is not normal": raw(namespaces=("Researcher/*",)),
        "a pattern for everything": raw(namespaces=("*",)),
        "a pattern with the wildcard inside": raw(namespaces=("a/*/b",)),
        "a short serial": fields(*head, ("researcher",), ("read",), NOW, NOW + 1, bytes(15)),
        "a short agent key": fields(*head[:3], bytes(31), ("researcher",), ("read",), *tail),
        "a field more": fields(*head, ("researcher",), ("read",), *tail, b""),
        "a name not in NFC": lp(
            body.replace(b"researcher", "re\u0301searche".encode()[:10]), signature
        ).hex(),
    }
    forged = {
        "another account's signature": lp(body, OTHER_ROOT.account_identity.sign(body).signature).hex(),
        "a changed body": lp(body.replace(b"\0\0\0\x05write", b"\0\0\0\x05admin"), signature).hex(),
        "no signature": lp(body, bytes(64)).hex(),
        "a signature that is not canonical (S + L)": lp(body, not_canonical).hex(),
    }
    for why, bad in ED25519_BAD_KEYS.items():
        forged[f"account key: {why}"] = lp(_certificate(account_key=bad)._body(), FORGERY).hex()
    return {
        "account": ROOT.account,
        "verifies": [
            {
                "encoded": good.hex(),
                "agent": "researcher",
                "namespaces": ["researcher", "researcher/*"],
                "rights": ["read", "write"],
                "not_before": NOW,
                "not_after": NOW + 86_400,
            }
        ],
        "certificate_malformed": [{"why": why, "encoded": encoded} for why, encoded in malformed.items()],
        "certificate_signature": [{"why": why, "encoded": encoded} for why, encoded in forged.items()],
    }


def signatures() -> dict:
    agent = ROOT.agent("researcher")
    certificate = base64url.encode(_certificate().issue(ROOT.account_identity))
    request = {
        "method": "POST",
        "authority": "127.0.0.1:8787",
        "target": "/v1/recall?x=%2F",
        "body": b'{"query":"coffee"}'.hex(),
        "certificate": certificate,
        "memory_key": "c2VhbGVk",
        "agent_key": bytes(agent.identity.verify_key).hex(),
    }
    signature = signing.sign(
        agent.identity,
        method=request["method"],
        authority=request["authority"],
        target=request["target"],
        body_sha256=hashlib.sha256(bytes.fromhex(request["body"])).digest(),
        created=NOW,
        nonce=SERIAL,
        certificate=certificate,
        memory_key=request["memory_key"],
    )
    header = signature.header()
    raw = base64url.decode(header)

    def other(at: int, size: int, value: int) -> str:
        return base64url.encode(raw[:at] + value.to_bytes(size, "big") + raw[at + size :])

    high = raw[:64] + (int.from_bytes(raw[64:], "little") + ORDER).to_bytes(32, "little")
    refused = [
        {"why": "another method", "method": "PUT"},
        {"why": "another authority", "authority": "127.0.0.1:8788"},
        {"why": "another target", "target": "/v1/recall?x=/"},
        {"why": "another body", "body": b"{}".hex()},
        {"why": "another certificate", "certificate": certificate + "A"},
        {"why": "another sealed key", "memory_key": "c2VhbGVl"},
        {"why": "no sealed key", "memory_key": ""},
        {"why": "another agent's key", "agent_key": bytes(ROOT.agent("coder").identity.verify_key).hex()},
        {"why": "a key of 31 bytes", "agent_key": "00" * 31},
        {"why": "another creation", "header": other(0, 8, NOW + 1)},
        {"why": "another end", "header": other(8, 8, NOW + 121)},
        {"why": "another nonce", "header": other(16, 1, 0xFF)},
        {"why": "a changed signature", "header": other(95, 1, raw[95] ^ 1)},
        {"why": "a signature that is not canonical (S + L)", "header": base64url.encode(high)},
    ]
    forged = base64url.encode(raw[:32] + FORGERY)
    refused += [
        {"why": f"agent key: {why}", "agent_key": bad.hex(), "header": forged}
        for why, bad in ED25519_BAD_KEYS.items()
    ]
    times = [
        {"why": "at its creation", "now": NOW, "rule": None},
        {"why": "60 s before", "now": NOW - 60, "rule": None},
        {"why": "61 s before", "now": NOW - 61, "rule": "not_yet_valid"},
        {"why": "60 s after its end", "now": NOW + 180, "rule": None},
        {"why": "61 s after its end", "now": NOW + 181, "rule": "expired"},
        {"why": "a window of 121 s", "now": NOW, "rule": "window", "expires": NOW + 121},
        {"why": "an end before its creation", "now": NOW, "rule": "window", "expires": NOW - 1},
    ]
    malformed = [
        "",
        "A" * 127,
        "A" * 129,
        header + "=",
        header + "A",
        header[:-1] + "*",
        " " + header,
        header.replace("-", "+") + "\n",
    ]
    authorities = [
        {"host": host, "scheme": scheme, "authority": signing.normal_authority(host, scheme)}
        for host, scheme in (
            ("LocalHost:8787", "http"), ("example.com:443", "https"), ("example.com:443", "http"), ("example.com.", "https"),
            ("example.com.:443", "https"), ("[::1]:80", "http"), ("[::1]", "http"), ("[::1]:8787", "http"), (" a ", "http"),
        )
    ]  # fmt: skip
    return {
        "request": request,
        "header": header,
        "created": NOW,
        "refused": refused,
        "times": times,
        "malformed": malformed,
        "authorities": authorities,
        "digests": {
            "good": signing.content_digest(hashlib.sha256(b"").digest()),
            "malformed": [
                "",
                "sha-256=::",
                "sha-256=:AAAA:",
                "sha-512=:" + "A" * 44 + ":",
                signing.content_digest(bytes(32))[:-1],
                signing.content_digest(bytes(32)) + ", sha-256=:x:",
                "sha-256=:" + "A" * 42 + "B=:",
            ],
        },
    }


def fleet_list() -> dict:
    keys = (
        FleetKey("20260102", bytes(FLEET.public_key), NOW + 172_800),
        FleetKey("20260101", bytes(PrivateKey(bytes([8]) * 32).public_key), NOW + 86_400),
    )
    issued = FleetList.issue(RELAYER, NOW, keys)
    rows = [{"day": key.day, "public_key": key.public_key.hex(), "not_after": key.not_after} for key in keys]
    base = {
        "identity": issued.identity.hex(),
        "issued_at": NOW,
        "keys": rows,
        "signature": issued.signature.hex(),
        "now": NOW,
    }
    other = [rows[0] | {"not_after": NOW + 172_801}, rows[1]]
    refused = [
        {"why": "another time", "rule": "keys_signature", "issued_at": NOW + 1},
        {"why": "another end", "rule": "keys_signature", "keys": other},
        {"why": "another order", "rule": "keys_signature", "keys": rows[::-1]},
        {"why": "a key less", "rule": "keys_signature", "keys": rows[:1]},
        {
            "why": "another identity",
            "rule": "keys_signature",
            "identity": bytes(SigningKey(bytes(32)).verify_key).hex(),
        },
        {"why": "a short identity", "rule": "keys_signature", "identity": "00" * 31},
        {"why": "a short signature", "rule": "keys_signature", "signature": "00" * 63},
        {"why": "older than a day", "rule": "keys_stale", "now": NOW + 86_401},
        {"why": "from the future", "rule": "keys_future", "now": NOW - 86_401},
    ]
    refused += [
        {
            "why": f"identity: {why}",
            "rule": "keys_signature",
            "identity": bad.hex(),
            "signature": FORGERY.hex(),
        }
        for why, bad in ED25519_BAD_KEYS.items()
    ]
    return {
        "verifies": [base, base | {"now": NOW + 86_400}, base | {"now": NOW - 86_400}],
        "refused": [base | bad for bad in refused],
    }


def proofs() -> dict:
    secret = ROOT.agent("researcher").namespace_secret("researcher", 1)
    other_secret = ROOT.agent("researcher").namespace_secret("researcher/x", 1)
    signature = base64url.encode(bytes(range(96)))
    said = {
        "signature": signature,
        "method": "POST",
        "target": "/v1/recall",
        "digest": signing.content_digest(hashlib.sha256(b"{}").digest()),
        "content_type": "application/json",
    }
    request = answered_request(**said)
    others = {
        "another signature's": {"signature": base64url.encode(bytes(range(1, 97)))},
        "another method's": {"method": "PUT"},
        "another target's": {"target": "/v1/recall?"},
        "another digest's": {"digest": ""},
        "a sealed body's": {"content_type": SEALED_TYPE},
    }
    other_request = answered_request(**{**said, **others["another signature's"]})
    body = b'{"memories":[],"considered":0}'
    parts = (b'{"memrelay_export":1,"namespace":"researcher","memories":0}\n', b'{"end":true,"memories":0}\n')

    def prover(key: bytes = b"", *, of: bytes = request, identity: SigningKey = RELAYER) -> Prover:
        made = Prover(of, identity)
        made.accepted(key)
        return made

    key = answer_key(secret)
    base = {
        **said,
        "identity": bytes(RELAYER.verify_key).hex(),
        "key": key.hex(),
        "status": 200,
        "body": body.hex(),
    }
    mac, signed = prover(key).whole(200, body), prover().whole(200, body)
    part = prover(key).line(parts[0]).splitlines()[1][10:-2].decode()
    refused = []
    for kind, proof in (("authenticated", mac), ("signed", signed)):
        raw = base64url.decode(proof)
        for why, changed in {
            **others,
            "with another status": {"status": 404},
            "with another body": {"body": body[:-1].hex()},
            "without a body": {"body": ""},
            "truncated": {"proof": base64url.encode(raw[:-1])},
            "with a changed bit": {"proof": base64url.encode(raw[:-1] + bytes((raw[-1] ^ 1,)))},
            "with padding": {"proof": proof + "="},
            "with a byte more": {"proof": base64url.encode(raw + b"\0")},
        }.items():
            refused.append({"why": f"{kind}, {why}", **base, "proof": proof, **changed})
    other_key = answer_key(other_secret)
    other_relayer = SigningKey(bytes([10]) * 32)
    high = base64url.decode(signed)
    high = high[:32] + (int.from_bytes(high[32:], "little") + ORDER).to_bytes(32, "little")
    refused += [
        {"why": "none", **base, "proof": ""},
        {"why": "a refusal's", **base, "proof": Prover(request, RELAYER).whole(200, body)},
        {"why": "another namespace's", **base, "proof": prover(other_key).whole(200, body)},
        {"why": "authenticated, where no secret was sent", **base, "key": "", "proof": mac},
        {"why": "another relayer's", **base, "proof": prover(identity=other_relayer).whole(200, body)},
        {"why": "of a part", **base, "body": parts[0].hex(), "proof": part},
        {"why": "not canonical (S + L)", **base, "proof": base64url.encode(high)},
    ]
    refused += [
        {"why": f"identity: {why}", **base, "identity": bad.hex(), "proof": base64url.encode(FORGERY)}
        for why, bad in ED25519_BAD_KEYS.items()
    ]

    def stream(made: Prover) -> bytes:
        return b"".join(map(made.line, parts))

    good = stream(prover(key))
    lines = good.splitlines(keepends=True)
    whole = prover(key).whole(200, parts[0]).encode()
    streams = {
        "cut in a line": good[:-5],
        "cut before a proof": b"".join(lines[:3]),
        "without a proof": b"".join(parts),
        "a changed line": good.replace(b'"memories":0', b'"memories":1', 1),
        "a line more": good + b'{"memory":{}}\n',
        "a line less": b"".join(lines[1:]),
        "parts exchanged": b"".join((*lines[2:], *lines[:2])),
        "a part twice": b"".join((*lines[:2], *lines)),
        "the proof of a whole answer": lines[0] + b'{"proof":"%s"}\n' % whole,
        "another request's": stream(prover(key, of=other_request)),
        "another namespace's": stream(prover(other_key)),
        "another relayer's": stream(prover(identity=other_relayer)),
    }
    return {
        "keys": [
            {"secret": secret.hex(), "answer_key": key.hex()},
            {"secret": other_secret.hex(), "answer_key": other_key.hex()},
        ],
        "proves": [
            {**base, "proof": mac},
            {**base, "proof": signed},
            {**base, "key": "", "proof": signed},
            {**base, "status": 404, "proof": prover(key).whole(404, body)},
            {**base, "body": "", "proof": prover(key).whole(200, b"")},
            {**base, "content_type": "application/json; charset=utf-8", "proof": mac},
        ],
        "proves_refusals": [
            {**base, "status": 413, "proof": Prover(request, RELAYER).whole(413, body)},
            {**base, "key": "", "status": 404, "proof": Prover(request, RELAYER).whole(404, body)},
        ],
        "refused": refused,
        "streams": [
            {**base, "body": stream(made).hex(), "lines": [part.strip().decode() for part in parts]}
            for made in (prover(key), prover())
        ],
        "refused_streams": [{"why": why, **base, "body": wrong.hex()} for why, wrong in streams.items()],
        "events": prover(key).comment(b"event: remembered\ndata: {}\n\n").decode(),
    }


def sealed_bodies() -> dict:
    secret = ROOT.agent("researcher").namespace_secret("researcher", 1)
    base = {"secret": secret.hex(), "nonce": SERIAL.hex()}
    sealed = seal_body(secret, SERIAL, b'{"query":"coffee"}')
    good = {**base, "sealed": sealed.hex()}
    other = ROOT.agent("researcher").namespace_secret("researcher/x", 1)
    return {
        "opens": [
            {**good, "body": b'{"query":"coffee"}'.hex()},
            {**base, "sealed": seal_body(secret, SERIAL, b"").hex(), "body": ""},
        ],
        "does_not_open": [
            {"why": "another namespace", **good, "secret": other.hex()},
            {"why": "another request", **good, "nonce": bytes(16).hex()},
            {"why": "truncated", **good, "sealed": sealed[:-1].hex()},
            {"why": "a byte more", **good, "sealed": (sealed + b"\0").hex()},
            {"why": "a changed byte", **good, "sealed": (bytes((sealed[0] ^ 1,)) + sealed[1:]).hex()},
            {"why": "a changed tag", **good, "sealed": (sealed[:-1] + bytes((sealed[-1] ^ 1,))).hex()},
            {"why": "in clear", **good, "sealed": b'{"query":"coffee"}'.hex()},
            {"why": "shorter than a tag", **good, "sealed": "00" * 15},
            {"why": "nothing", **good, "sealed": ""},
        ],
    }


FILES = {
    "derivation": derivation,
    "names": names_,
    "sealing": sealing,
    "sealed_keys": sealed_keys,
    "certificates": certificates,
    "signatures": signatures,
    "fleet_list": fleet_list,
    "proofs": proofs,
    "sealed_bodies": sealed_bodies,
}


def main(arguments: list[str]) -> int:
    force = arguments == ["--force"]
    if arguments and not force:
        print(__doc__)
        return 2
    kept = 0
    for name, make in FILES.items():
        path = HERE / f"{name}.json"
        if path.exists() and not force:
            kept += 1
            continue
        path.write_text(json.dumps(make(), indent=1, ensure_ascii=True) + "\n")
        print(f"wrote {path.name}")
    if kept:
        print(f"left {kept} files as they are; --force writes them anew")
    return 1 if kept else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
