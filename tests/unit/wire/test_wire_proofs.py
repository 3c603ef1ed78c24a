"""Who answers proves it, and what is sent opens for who may read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey
from wire_vectors import vectors

from relayer.wire.codec import NotAccepted, UnsealError
from relayer.wire.signing import (
    BODY_OVERHEAD,
    Prover,
    Verifier,
    answer_key,
    answered_request,
    open_body,
    seal_body,
)

FROZEN = vectors("proofs")
IDENTITY = SigningKey(bytes(32))
KEY = bytes(range(32))


def request_of(row):
    names = ("method", "target", "digest", "content_type")
    return answered_request(row["signature"], **{name: row[name] for name in names})


def verifier(row):
    return Verifier(request_of(row), bytes.fromhex(row["identity"]), bytes.fromhex(row["key"]))


async def lines_of(check, body, *, cut=7, most=10_000):
    async def chunks():
        for at in range(0, len(body), cut):
            yield body[at : at + cut]

    read = []
    proven = check.lines(chunks(), most=most)
    try:
        while (line := await anext(proven, None)) is not None:
            read.append(line)
    except NotAccepted:
        return read, True
    return read, False


@pytest.mark.vectors("proofs", "keys")
def test_the_key_of_answers_comes_from_the_namespaces_secret(row):
    assert answer_key(bytes.fromhex(row["secret"])).hex() == row["answer_key"]


@pytest.mark.vectors("proofs", "proves")
def test_what_proves_an_answer_does_so_for_ever(row):
    assert verifier(row).check(row["proof"], row["status"], bytes.fromhex(row["body"])) is True


@pytest.mark.vectors("proofs", "proves_refusals")
def test_a_refusal_from_before_acceptance_is_proven_and_known_as_one(row):
    assert verifier(row).check(row["proof"], row["status"], bytes.fromhex(row["body"])) is False


@pytest.mark.vectors("proofs", "refused")
def test_whatever_is_wrong_proves_nothing(row):
    with pytest.raises(NotAccepted) as raised:
        verifier(row).check(row["proof"], row["status"], bytes.fromhex(row["body"]))
    assert raised.value.rule == "answer_proof"


@pytest.mark.vectors("proofs", "streams")
async def test_a_proven_stream_is_read_in_any_cut(row):
    body = bytes.fromhex(row["body"])
    for cut in (1, 7, len(body)):
        read, failed = await lines_of(verifier(row), body, cut=cut)
        assert ([line.decode() for line in read], failed) == (row["lines"], False)


@pytest.mark.vectors("proofs", "refused_streams")
async def test_no_line_of_a_stream_is_believed_before_its_proof(row):
    (good, *_) = FROZEN["streams"]
    read, failed = await lines_of(verifier(row), bytes.fromhex(row["body"]))
    assert failed
    # What was proven before may have been read; nothing else.
    assert [line.decode() for line in read] == good["lines"][: len(read)]


def test_events_are_proven_in_a_comment():
    prover = Prover(request_of(FROZEN["proves"][0]), IDENTITY)
    prover.accepted(bytes.fromhex(FROZEN["proves"][0]["key"]))
    assert prover.comment(b"event: remembered\ndata: {}\n\n").decode() == FROZEN["events"]


async def test_lines_that_wait_for_a_proof_take_bounded_room():
    check = Verifier(b"r", bytes(IDENTITY.verify_key), KEY)
    assert await lines_of(check, b"x" * 101, most=100) == ([], True)
    prover = Prover(b"r", IDENTITY)
    prover.accepted(KEY)
    long = b"".join(prover.line(b"x" * 30 + b"\n") for _ in range(9))
    assert await lines_of(check, long, most=100) == ([b"x" * 30] * 9, False)


@given(st.binary(max_size=80), st.binary(max_size=80), st.integers(100, 599), st.integers(100, 599))
def test_a_proof_is_of_one_status_and_one_body(body, other, status, other_status):
    prover, check = Prover(b"r", IDENTITY), Verifier(b"r", bytes(IDENTITY.verify_key), KEY)
    prover.accepted(KEY)
    proof = prover.whole(status, body)
    check.check(proof, status, body)
    if (body, status) != (other, other_status):
        with pytest.raises(NotAccepted):
            check.check(proof, other_status, other)


@given(st.text(max_size=100))
def test_a_header_from_anywhere_proves_nothing(proof):
    with pytest.raises(NotAccepted):
        Verifier(b"r", bytes(IDENTITY.verify_key), KEY).check(proof, 200, b"")


@pytest.mark.vectors("sealed_bodies", "opens")
def test_a_body_that_was_sealed_in_this_form_opens_for_ever(row):
    opened = open_body(*(bytes.fromhex(row[name]) for name in ("secret", "nonce", "sealed")))
    assert opened.hex() == row["body"]


@pytest.mark.vectors("sealed_bodies", "does_not_open")
def test_a_body_opens_with_its_secret_and_its_request_alone(row):
    with pytest.raises(UnsealError):
        open_body(*(bytes.fromhex(row[name]) for name in ("secret", "nonce", "sealed")))


@given(st.binary(max_size=200))
def test_a_sealed_body_is_longer_by_its_tag(body):
    sealed = seal_body(KEY, bytes(16), body)
    assert len(sealed) == len(body) + BODY_OVERHEAD
    assert open_body(KEY, bytes(16), sealed) == body
