"""What the S3 store makes of every answer that a server gives, and of those that never come."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from certificates import self_signed
from s3_servers import ACCESS_KEY, CREDENTIALS, SECRET_KEY, KeptClient, free_ports
from scripted_s3 import DATE_MS, How, Reply, ScriptedS3, found, listing, refusal, serving, stored

from relayer.adapters.s3_store import S3Store, Timeouts
from relayer.adapters.s3_store.client import Client
from relayer.adapters.system import SystemClock
from relayer.errors import StoreFull, StoreMisconfigured, StoreThrottled, StoreUnavailable, VersionsHidden
from relayer.ports import (
    Absent,
    Changed,
    Created,
    Exists,
    Found,
    ObjectInfo,
    Swapped,
    Throttled,
    Unchanged,
    Unknown,
)

KEY = "ns/0f/wal/00000000000000000001"
ETAG = '"d41d8cd98f00b204e9800998ecf8427e-2"'
QUICK = Timeouts(connect=2.0, silence=0.3, call=5.0)


class HurriedClock(SystemClock):
    """Notes how long it was asked to wait, and does not."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedS3]:
    with serving(ScriptedS3) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ScriptedS3) -> Iterator[Client]:
    client = _client(server.url)
    yield client
    client.close()


@pytest.fixture
def clock() -> HurriedClock:
    return HurriedClock()


@pytest.fixture
async def store(client: Client, clock: HurriedClock) -> AsyncIterator[S3Store]:
    store = S3Store(KeptClient(client), "memories", clock, QUICK)
    yield store
    await store.close()


def _client(url: str, patience: Timeouts = QUICK) -> Client:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        return Client("memories", url, None, 8, patience)


async def _write(store: S3Store, operation: str) -> object:
    return await (store.create(KEY, b"new") if operation == "create" else store.swap(KEY, b"new", ETAG))


BOTH = pytest.mark.parametrize("operation", ["create", "swap"])


@BOTH
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (refusal(409, "ConditionalRequestConflict"), Throttled),
        (refusal(409, "OperationAborted"), Unknown),
        (refusal(429, "TooManyRequests"), Throttled),
        (refusal(400, "RequestTimeout"), Unknown),
        (refusal(400, "BadDigest"), Unknown),
        (refusal(500, "InternalError"), Unknown),
        (refusal(502, "BadGateway"), Unknown),
        (refusal(503, "SlowDown"), Unknown),
        (refusal(507, "InsufficientStorage"), Unknown),
        (Reply(504, b"<html>gateway</html>"), Unknown),
        (stored(Date=""), Unknown),
        (stored(Date="yesterday"), Unknown),
        (Reply(200, b""), Unknown),
        (Reply(how=How.LOST), Unknown),
        (Reply(how=How.RESET), Unknown),
        (Reply(how=How.HELD), Unknown),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else f"{value.status}-{value.how.name}",
)
async def test_a_write_is_asked_once_and_no_doubt_is_hidden(
    server: ScriptedS3, store: S3Store, operation: str, reply: Reply, expected: type
) -> None:
    # A second answer lies ready: whoever asks twice takes it.
    server.will_answer(reply, stored())
    assert isinstance(await _write(store, operation), expected)
    assert len(server.requests) == 1


@BOTH
@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (refusal(403, "AccessDenied"), StoreMisconfigured, "s3:PutObject"),
        (refusal(403, "SignatureDoesNotMatch"), StoreMisconfigured, "AWS_SECRET_ACCESS_KEY"),
        (refusal(400, "ExpiredToken"), StoreMisconfigured, "AWS_SESSION_TOKEN"),
        (refusal(403, "RequestTimeTooSkewed"), StoreMisconfigured, "clock"),
        (refusal(404, "NoSuchBucket"), StoreMisconfigured, "no such bucket"),
        (Reply(404, b"<html>no</html>"), StoreMisconfigured, "no answer of an S3 server"),
        (refusal(501, "NotImplemented"), StoreMisconfigured, "conditional writes"),
        (
            refusal(
                301, "PermanentRedirect", x_amz_bucket_region="eu-west-3", location="http://127.0.0.1:1/"
            ),
            StoreMisconfigured,
            "region eu-west-3",
        ),
        (
            refusal(307, "TemporaryRedirect", location="http://127.0.0.1:1/"),
            StoreMisconfigured,
            "--endpoint-url",
        ),
        (refusal(400, "AuthorizationHeaderMalformed"), StoreMisconfigured, "--region"),
        (refusal(403, "QuotaExceeded"), StoreFull, "no room"),
    ],
    ids=lambda value: f"{value.status}" if isinstance(value, Reply) else None,
)
async def test_a_refused_write_is_raised_with_the_fix_and_not_tried_elsewhere(
    server: ScriptedS3, store: S3Store, operation: str, reply: Reply, error: type[Exception], said: str
) -> None:
    server.will_answer(reply, found())
    with pytest.raises(error, match=said) as caught:
        await _write(store, operation)
    assert len(server.requests) == 1
    assert SECRET_KEY not in str(caught.value)
    assert ACCESS_KEY not in str(caught.value)


async def test_conditions_are_sent_and_an_etag_goes_back_exactly_as_it_came(
    server: ScriptedS3, store: S3Store
) -> None:
    server.will_answer(stored(ETAG), stored('"e2"'))
    assert await store.create(KEY, b"one") == Created(ETAG, DATE_MS)
    assert await store.swap(KEY, b"two", ETAG) == Swapped('"e2"', DATE_MS)
    one, two = server.requests
    assert (one.method, one.path, one.body) == ("PUT", f"/memories/{KEY}", b"one")
    assert one.headers["if-none-match"] == "*"
    assert "if-match" not in one.headers
    assert one.headers["content-md5"] == base64.b64encode(hashlib.md5(b"one").digest()).decode()
    assert two.headers["if-match"] == ETAG
    assert "if-none-match" not in two.headers
    assert not [name for name in one.headers if "checksum" in name or "trailer" in name]


async def test_a_lost_condition_is_exists_or_changed(server: ScriptedS3, store: S3Store) -> None:
    server.will_answer(refusal(412, "PreconditionFailed"), refusal(412, "PreconditionFailed"))
    assert await store.create(KEY, b"") == Exists(DATE_MS)
    assert await store.swap(KEY, b"", ETAG) == Changed(DATE_MS)


async def test_a_swap_of_what_is_absent_is_changed_and_a_create_there_makes_no_sense(
    server: ScriptedS3, store: S3Store
) -> None:
    server.will_answer(refusal(404, "NoSuchKey"), refusal(404, "NoSuchKey"))
    assert await store.swap(KEY, b"", ETAG) == Changed(DATE_MS)
    with pytest.raises(StoreMisconfigured):
        await store.create(KEY, b"")


async def test_the_server_says_how_long_to_wait_within_reason(server: ScriptedS3, store: S3Store) -> None:
    for said, meant in [("7", 7.0), ("86400", 30.0), ("soon", 1.0), ("nan", 1.0)]:
        server.will_answer(refusal(429, "SlowDown", retry_after=said))
        assert await store.create(KEY, b"") == Throttled(meant)


async def test_a_server_that_is_not_there_has_written_nothing() -> None:
    [port] = free_ports(1)
    store = S3Store(_client(f"http://127.0.0.1:{port}"), "memories", HurriedClock(), QUICK)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await store.create(KEY, b"")
    with pytest.raises(StoreUnavailable, match="--endpoint-url"):
        await store.get(KEY)
    await store.close()


async def test_without_credentials_nothing_is_sent(
    server: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    store = await S3Store.open("memories", clock=SystemClock(), endpoint_url=server.url)
    server.will_answer()
    for call in (store.create(KEY, b""), store.get(KEY)):
        with pytest.raises(StoreMisconfigured, match="no credentials"):
            await call
    assert not server.requests
    await store.close()


async def test_settings_that_make_no_client_are_named() -> None:
    with pytest.raises(StoreMisconfigured, match="--endpoint-url"):
        await S3Store.open("memories", clock=SystemClock(), endpoint_url="http://a b")


class TestReads:
    async def test_absent_is_no_such_key_and_nothing_else(self, server: ScriptedS3, store: S3Store) -> None:
        server.will_answer(refusal(404, "NoSuchKey"))
        assert await store.get(KEY) == Absent(DATE_MS)

    @pytest.mark.parametrize(
        ("reply", "said"),
        [
            (refusal(404, "NoSuchBucket"), "no such bucket"),
            (Reply(404, b"<html>no</html>"), "no answer of an S3 server"),
            (Reply(404, b""), "no answer of an S3 server"),
            (refusal(403, "AccessDenied"), "s3:GetObject, and s3:ListBucket"),
            (refusal(403, "InvalidAccessKeyId"), "AWS_ACCESS_KEY_ID"),
            (refusal(403, "RequestTimeTooSkewed"), "clock"),
            (refusal(301, "PermanentRedirect", x_amz_bucket_region="eu-west-3"), "region eu-west-3"),
            (refusal(302, "Found", location="http://127.0.0.1:1/"), "refuses the request"),
            (found(age="12"), "cache"),
            (found(Date=""), "no Date"),
            (found(Date="yesterday"), "no Date"),
            (Reply(200, b"body"), "no ETag"),
        ],
        ids=lambda value: f"{value.status}" if isinstance(value, Reply) else None,
    )
    async def test_what_an_operator_must_change_is_not_absence_and_not_tried_again(
        self, server: ScriptedS3, store: S3Store, reply: Reply, said: str
    ) -> None:
        server.will_answer(reply, found())
        with pytest.raises(StoreMisconfigured, match=said):
            await store.get(KEY)
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(200, b"whole body", {"ETag": '"e1"'}, How.TRUNCATED),
            Reply(how=How.LOST),
            Reply(how=How.HELD),
            refusal(500, "InternalError"),
            refusal(503, "SlowDown"),
            refusal(503, "ServiceUnavailable"),
            refusal(400, "RequestTimeout"),
        ],
        ids=lambda reply: f"{reply.status}-{reply.how.name}",
    )
    async def test_a_failed_read_is_tried_again(
        self, server: ScriptedS3, store: S3Store, reply: Reply
    ) -> None:
        server.will_answer(reply, found(b"whole body"))
        assert await store.get(KEY) == Found(b"whole body", '"e1"', DATE_MS)
        assert len(server.requests) == 2

    async def test_a_body_that_is_always_cut_short_is_never_taken_for_the_object(
        self, server: ScriptedS3, store: S3Store
    ) -> None:
        server.will_answer(*[Reply(200, b"whole body", {"ETag": '"e1"'}, How.TRUNCATED)] * 9)
        with pytest.raises(StoreUnavailable):
            await store.get(KEY)
        assert len(server.requests) == 3

    async def test_a_server_that_keeps_asking_for_patience_is_obeyed(
        self, server: ScriptedS3, store: S3Store, clock: HurriedClock
    ) -> None:
        server.will_answer(*[refusal(503, "SlowDown", retry_after="2")] * 9)
        with pytest.raises(StoreThrottled) as caught:
            await store.get(KEY)
        assert caught.value.retry_after == 2.0
        assert clock.waited == [2.0, 2.0]
        assert len(server.requests) == 3

    async def test_a_known_etag_is_asked_about_and_unchanged(
        self, server: ScriptedS3, store: S3Store
    ) -> None:
        server.will_answer(Reply(304))
        assert await store.get(KEY, if_none_match=ETAG) == Unchanged(DATE_MS)
        assert server.requests[0].headers["if-none-match"] == ETAG

    async def test_a_range_is_cut_from_a_server_that_gives_the_whole(
        self, server: ScriptedS3, store: S3Store
    ) -> None:
        server.will_answer(found(b"0123456789"))
        assert await store.get(KEY, byte_range=(2, 5)) == Found(b"234", '"e1"', DATE_MS)
        assert server.requests[0].headers["range"] == "bytes=2-4"

    async def test_another_range_than_asked_for_is_refused(self, server: ScriptedS3, store: S3Store) -> None:
        wrong = Reply(206, b"012", {"ETag": '"e1"', "Content-Range": "bytes 0-2/10"})
        server.will_answer(*[wrong] * 3)
        with pytest.raises(StoreUnavailable, match="another part"):
            await store.get(KEY, byte_range=(2, 5))

    async def test_a_range_behind_the_end_is_empty(self, server: ScriptedS3, store: S3Store) -> None:
        server.will_answer(refusal(416, "InvalidRange"), found(b"0123"))
        assert await store.get(KEY, byte_range=(7, 9)) == Found(b"", '"e1"', DATE_MS)


class TestDeletionsAndListings:
    async def test_a_deletion_is_asked_once(self, server: ScriptedS3, store: S3Store) -> None:
        # A second one could meet what somebody has created meanwhile.
        server.will_answer(Reply(how=How.LOST), Reply(204))
        with pytest.raises(StoreUnavailable):
            await store.delete(KEY)
        assert len(server.requests) == 1

    async def test_a_forbidden_deletion_names_the_permission(
        self, server: ScriptedS3, store: S3Store
    ) -> None:
        server.will_answer(refusal(403, "AccessDenied"))
        with pytest.raises(StoreMisconfigured, match="s3:DeleteObject"):
            await store.delete(KEY)

    async def test_a_listing_goes_over_its_pages_and_leaves_out_what_is_no_key(
        self, server: ScriptedS3, store: S3Store
    ) -> None:
        first = listing("ns/a", "ns/", "Stranger.txt", token="next page")
        server.will_answer(first, refusal(500, "InternalError"), listing("ns/b"))
        rows = [row async for row in store.list("ns/")]
        assert rows == [ObjectInfo("ns/a", 3, 1_794_910_830_500), ObjectInfo("ns/b", 3, 1_794_910_830_500)]
        assert "continuation-token=next%20page" in server.requests[1].path

    async def test_a_page_that_is_no_listing_is_not_an_empty_store(
        self, server: ScriptedS3, store: S3Store
    ) -> None:
        server.will_answer(Reply(200, b"<html>welcome</html>"))
        with pytest.raises(StoreMisconfigured, match="no answer of an S3 server"):
            await anext(aiter(store.list("ns/")))

    async def test_purge_destroys_every_version_and_marker_of_this_name_alone(
        self, server: ScriptedS3, store: S3Store
    ) -> None:
        listed = (
            "<ListVersionsResult><IsTruncated>false</IsTruncated>"
            f"<Version><Key>{KEY}</Key><VersionId>v1</VersionId></Version>"
            f"<Version><Key>{KEY}0</Key><VersionId>v2</VersionId></Version>"
            f"<DeleteMarker><Key>{KEY}</Key><VersionId>v3</VersionId></DeleteMarker></ListVersionsResult>"
        )
        server.will_answer(Reply(200, listed.encode()), Reply(204), Reply(204))
        assert await store.purge(KEY) == 2
        deleted = [request.path for request in server.requests[1:]]
        assert deleted == [f"/memories/{KEY}?versionId=v1", f"/memories/{KEY}?versionId=v3"]

    async def test_where_no_versions_are_kept_the_object_is_the_only_one(
        self, server: ScriptedS3, store: S3Store
    ) -> None:
        server.will_answer(refusal(501, "NotImplemented"), found(), Reply(204))
        assert await store.purge(KEY) == 1
        assert server.requests[-1].path == f"/memories/{KEY}"
        server.will_answer(refusal(501, "NotImplemented"), refusal(404, "NoSuchKey"))
        assert await store.versions(KEY) == 0


class TestTime:
    """Every call ends, and what had not begun when it ended never happens."""

    async def test_a_call_ends_in_time_though_the_server_drips(self, server: ScriptedS3) -> None:
        patience = Timeouts(connect=2.0, silence=5.0, call=0.3)
        store = S3Store(_client(server.url, patience), "memories", SystemClock(), patience)
        server.will_answer(Reply(how=How.HELD), Reply(how=How.HELD))
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"within 0\.3 s"):
            await store.get(KEY)
        assert isinstance(await store.create(KEY, b""), Unknown)
        assert time.monotonic() - began < 3
        server.over.set()
        await store.close()
        server.over.clear()

    async def test_a_write_that_found_no_connection_has_not_happened(self, server: ScriptedS3) -> None:
        patience = Timeouts(connect=2.0, silence=5.0, call=0.5)
        store = S3Store(_client(server.url, patience), "memories", SystemClock(), patience, threads=1)
        server.will_answer(Reply(how=How.HELD), stored())
        first, second = (asyncio.create_task(store.create(key, b"")) for key in ("first", "second"))
        with pytest.raises(StoreUnavailable, match="no connection free"):
            await second
        assert isinstance(await first, Unknown)
        server.over.set()
        await store.close()
        server.over.clear()
        assert [request.path for request in server.requests] == ["/memories/first"]

    async def test_a_cancelled_write_that_has_not_begun_never_happens(self, server: ScriptedS3) -> None:
        patience = Timeouts(connect=2.0, silence=0.5, call=5.0)
        store = S3Store(_client(server.url, patience), "memories", SystemClock(), patience, threads=1)
        server.will_answer(Reply(how=How.HELD), stored())
        first, second = (asyncio.create_task(store.create(key, b"")) for key in ("first", "second"))
        await asyncio.sleep(0)
        second.cancel()
        assert isinstance(await first, Unknown)
        await store.close()
        assert second.cancelled()
        assert [request.path for request in server.requests] == ["/memories/first"]

    async def test_a_write_whose_process_was_stopped_has_no_time(
        self, server: ScriptedS3, client: Client
    ) -> None:
        class Leaping(SystemClock):
            def monotonic(self) -> float:
                # The second look, after the request, is much later.
                self.looks = getattr(self, "looks", 0) + 1
                return super().monotonic() + 3600 * (self.looks - 1)

        leaping, steady = (
            S3Store(KeptClient(client), "memories", clock, QUICK) for clock in (Leaping(), SystemClock())
        )
        server.will_answer(stored(), stored())
        assert isinstance(await leaping.create(KEY, b""), Unknown)
        assert isinstance(await steady.create(KEY, b""), Created)
        for store in (leaping, steady):
            await store.close()

    async def test_a_closed_store_says_so_and_leaves_no_thread(self, server: ScriptedS3) -> None:
        store = S3Store(_client(server.url), "memories", SystemClock(), QUICK)
        server.will_answer(found())
        await store.get(KEY)
        await store.close()
        await store.close()
        for call in (store.get(KEY), store.create(KEY, b"")):
            with pytest.raises(StoreUnavailable, match="closed"):
                await call


class TestCertificates:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        certificate, key = self_signed(tmp_path)
        file = tmp_path / "server.pem"
        file.write_bytes(key.read_bytes() + certificate.read_bytes())
        return file

    async def test_one_that_is_not_trusted_is_told_with_the_fix(self, certificate: Path) -> None:
        with serving(ScriptedS3, certificate) as server:
            store = S3Store(_client(server.url), "memories", HurriedClock(), QUICK)
            for call in (store.get(KEY), store.create(KEY, b"")):
                with pytest.raises(StoreMisconfigured, match="AWS_CA_BUNDLE"):
                    await call
            await store.close()
            assert not server.requests

    async def test_one_of_an_authority_of_one_s_own_is_trusted_when_told(
        self, certificate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        with serving(ScriptedS3, certificate) as server:
            store = S3Store(_client(server.url), "memories", HurriedClock(), QUICK)
            server.will_answer(stored())
            assert isinstance(await store.create(KEY, b""), Created)
            await store.close()

    async def test_a_server_without_tls_is_told_apart(self, server: ScriptedS3) -> None:
        store = S3Store(_client(server.url.replace("http:", "https:")), "memories", HurriedClock(), QUICK)
        with pytest.raises(StoreMisconfigured, match="does not speak TLS"):
            await store.get(KEY)
        await store.close()


class TestWordsForReadiness:
    """Everybody may read them, so they name nothing of the deployment."""

    @pytest.mark.parametrize(
        ("reply", "code"),
        [
            (refusal(403, "AccessDenied"), "access_denied"),
            (refusal(403, "InvalidAccessKeyId"), "credentials_refused"),
            (refusal(403, "RequestTimeTooSkewed"), "clock_refused"),
            (refusal(404, "NoSuchBucket"), "no_such_bucket"),
            (refusal(301, "PermanentRedirect"), "elsewhere"),
            (refusal(501, "NotImplemented"), "not_implemented"),
            (Reply(404, b"<html>no</html>"), "not_s3"),
            (refusal(418, "Teapot"), "refused"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_a_refusal_has_a_code_and_a_fix_without_addresses(
        self, server: ScriptedS3, store: S3Store, reply: Reply, code: str
    ) -> None:
        server.will_answer(reply)
        with pytest.raises(StoreMisconfigured) as caught:
            await store.get(KEY)
        assert caught.value.code == code
        assert caught.value.fix
        assert "127.0.0.1" not in caught.value.fix
        assert "memories" not in caught.value.fix

    @pytest.mark.parametrize("headers", [{"x-amz-version-id": "v1"}, {}], ids=["kept", "none"])
    async def test_versions_that_may_not_be_listed_are_told_from_versions_that_are_not_kept(
        self, server: ScriptedS3, store: S3Store, headers: dict[str, str]
    ) -> None:
        server.will_answer(refusal(403, "AccessDenied"), found(**headers))
        with pytest.raises(VersionsHidden, match="s3:ListBucketVersions") as caught:
            await store.versions(KEY)
        assert caught.value.kept is bool(headers)
