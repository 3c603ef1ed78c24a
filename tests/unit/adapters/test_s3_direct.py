"""The requests that are made without boto3 are those that boto3 would make."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st
from scripted_s3 import Reply, ScriptedS3, found, refusal, serving, stored

from relayer.adapters.s3_store import Timeouts
from relayer.adapters.s3_store.client import Client, Credentials, signed_headers
from relayer.adapters.s3_store.failures import NoSuccess
from relayer.adapters.s3_store.store import DirectClient

KEY = "ns/0f/wal/00000000000000000001"
NOON = 1_794_910_830.0


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with serving(ScriptedS3) as running:
        yield running


@pytest.fixture(autouse=True)
def only_these_credentials(s3_credentials: None) -> None:
    """Nothing of the developer's own."""


def _clients(
    url: str | None, bucket: str = "memories", region: str | None = None
) -> tuple[Client, DirectClient]:
    boto = Client(bucket, url, region, 2, Timeouts(2.0, 2.0, 5.0))
    return boto, DirectClient(boto, 2, Timeouts(2.0, 2.0, 5.0))


def _of_boto3(headers: dict[str, str]) -> dict[str, str]:
    """The headers that decide what a server does with a request; the rest tells who asks."""
    names = ("if-match", "if-none-match", "range", "host", "x-amz-security-token", "content-length")
    return {name: headers[name] for name in names if name in headers}


@given(
    method=st.sampled_from(["GET", "PUT"]),
    body=st.binary(max_size=64),
    token=st.none() | st.just("FwoGZXIvYXdzEB/+=="),
    condition=st.sampled_from([{}, {"if-none-match": "*"}, {"if-match": '"e-2"'}, {"range": "bytes=2-4"}]),
    now=st.integers(1_600_000_000, 2_000_000_000),
)
def test_a_signature_is_the_one_that_botocore_makes(
    method: str, body: bytes, token: str | None, condition: dict[str, str], now: int
) -> None:
    headers = signed_headers(
        method,
        "127.0.0.1:8333",
        f"/memories/{KEY}",
        body,
        condition,
        credentials=Credentials("AKID", "secret", token),
        region="eu-west-3",
        now=now,
    )
    theirs = AWSRequest(method, f"http://127.0.0.1:8333/memories/{KEY}", dict(condition), body)
    theirs.context["timestamp"] = headers["x-amz-date"]
    theirs.headers["X-Amz-Content-SHA256"] = headers["x-amz-content-sha256"]
    theirs.headers["X-Amz-Date"] = headers["x-amz-date"]
    if token is not None:
        theirs.headers["X-Amz-Security-Token"] = token
    auth = S3SigV4Auth(BotoCredentials("AKID", "secret", token), "s3", "eu-west-3")
    signature = auth.signature(auth.string_to_sign(theirs, auth.canonical_request(theirs)), theirs)
    assert headers["authorization"].endswith(f"Signature={signature}")
    assert datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%S%z").timestamp() == now


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("get_object", {}),
        ("get_object", {"Range": "bytes=2-4", "IfNoneMatch": '"e1"'}),
        ("put_object", {"Body": b"new", "IfNoneMatch": "*"}),
        ("put_object", {"Body": b"", "IfMatch": '"e1"'}),
    ],
)
def test_a_request_asks_for_the_same_as_boto3_s(
    server: ScriptedS3, monkeypatch: pytest.MonkeyPatch, operation: str, parameters: dict[str, object]
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    asked = []
    for client in _clients(server.url):
        server.will_answer(found() if operation == "get_object" else stored())
        client.ask(operation, Key=KEY, **parameters)
        [request] = server.requests
        asked.append((request.method, request.path, request.body, _of_boto3(dict(request.headers))))
        client.close()
    assert asked[0] == asked[1]


def test_what_is_not_a_read_or_write_of_one_object_is_left_to_boto3(server: ScriptedS3) -> None:
    _, direct = _clients(server.url)
    server.will_answer(stored(), stored(), found())
    direct.ask("put_object", Key=KEY, Body=b"", IfNoneMatch="*")
    direct.ask("delete_object", Key=KEY)
    direct.ask("get_object", Key=KEY, VersionId="v1")
    one, two, three = (request.headers.get("user-agent", "") for request in server.requests)
    assert one == "memrelay"
    assert "Boto3" in two
    assert "Boto3" in three
    assert server.requests[2].path.endswith("?versionId=v1")
    direct.close()


@pytest.mark.parametrize(
    ("bucket", "region", "host", "path"),
    [
        ("memories", "eu-west-3", "memories.s3.eu-west-3.amazonaws.com", "/"),
        ("memories", "us-east-1", "memories.s3.amazonaws.com", "/"),
        # A name with dots fits no wildcard certificate.
        ("with.dots", "eu-west-3", "s3.eu-west-3.amazonaws.com", "/with.dots/"),
    ],
)
def test_the_way_to_a_bucket_is_the_one_that_boto3_takes(
    bucket: str, region: str, host: str, path: str
) -> None:
    boto, direct = _clients(None, bucket, region)
    route = boto.route()
    assert route is not None
    assert (route.host, route.port, route.authority, route.path, route.region) == (
        host,
        443,
        host,
        path,
        region,
    )
    assert route.authorities is not None
    direct.close()


def test_a_directory_bucket_is_left_to_boto3_which_signs_its_requests_by_sessions() -> None:
    boto, direct = _clients(None, "memories--usw2-az1--x-s3", "us-west-2")
    assert boto.route() is None
    direct.close()


def test_a_proxy_is_left_to_boto3(server: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", server.url)
    boto, direct = _clients("http://s3.example.org")
    assert boto.route() is None
    server.will_answer(stored())
    direct.ask("put_object", Key=KEY, Body=b"", IfNoneMatch="*")
    [request] = server.requests
    assert request.path == f"http://s3.example.org/memories/{KEY}"
    assert "Boto3" in request.headers["user-agent"]
    direct.close()


@pytest.fixture
def role(server: ScriptedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials come from a role, which the same server gives or refuses."""
    config = tmp_path / "config"
    config.write_text(
        "[profile worker]\nrole_arn = arn:aws:iam::123456789012:role/worker\n"
        "source_profile = base\n[profile base]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "worker")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)


@pytest.mark.usefixtures("role")
def test_the_token_of_a_role_is_sent_and_signed(server: ScriptedS3) -> None:
    given = (
        "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>TEMPORARY</AccessKeyId>"
        "<SecretAccessKey>s</SecretAccessKey><SessionToken>the-token</SessionToken>"
        "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
    _, direct = _clients(server.url, region="us-east-1")
    server.will_answer(Reply(200, given.encode()), stored(), stored())
    for _ in range(2):
        direct.ask("put_object", Key=KEY, Body=b"", IfNoneMatch="*")
    # They are renewed over the network, for which no event loop may wait.
    assert direct.for_loop() is None
    asked_for_role, *written = server.requests
    assert asked_for_role.method == "POST"
    assert [request.headers["x-amz-security-token"] for request in written] == ["the-token"] * 2
    for request in written:
        assert "Credential=TEMPORARY/" in request.headers["authorization"]
        assert "x-amz-security-token" in request.headers["authorization"]
        assert request.headers["user-agent"] == "memrelay"
    direct.close()


@pytest.mark.usefixtures("role")
def test_a_role_that_is_refused_is_a_refusal_and_nothing_is_asked_of_the_bucket(server: ScriptedS3) -> None:
    refused = refusal(403, "AccessDenied")
    for client in _clients(server.url, region="us-east-1"):
        server.will_answer(refused)
        with pytest.raises(NoSuccess) as caught:
            client.ask("put_object", Key=KEY, Body=b"", IfNoneMatch="*")
        assert caught.value.failure.status == 403
        assert [request.method for request in server.requests] == ["POST"]
        client.close()


def test_credentials_do_not_show_what_is_secret() -> None:
    shown = repr(Credentials("AKID", "the-secret", "the-token"))
    assert "the-secret" not in shown
    assert "the-token" not in shown


def test_asking_for_the_way_sends_nothing_and_leaves_boto3_as_it_was(server: ScriptedS3) -> None:
    boto, direct = _clients(server.url)
    server.will_answer()
    assert boto.route() is not None
    assert not server.requests
    server.will_answer(found(b"body"))
    assert boto.ask("get_object", Key=KEY).body == b"body"
    direct.close()
