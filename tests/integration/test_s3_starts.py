"""What `memrelay serve` and `memrelay store probe` say of a bucket that cannot be used, to who runs them by hand."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from certificates import self_signed
from processes import Served, run_memrelay
from s3_proxy import delay, proxied, refuse
from s3_servers import BUCKET, CREDENTIALS, READER_KEY, SECRET_KEY, S3Server, free_ports

MISCONFIGURED, UNAVAILABLE = 2, 3


def _environment(url: str, bucket: str = BUCKET, **more: str) -> dict[str, str]:
    place = {"MEMRELAY_STORE": f"s3://{bucket}/start", "MEMRELAY_ENDPOINT_URL": url}
    return CREDENTIALS | {"MEMRELAY_RELAYER_KEY": "ab" * 32} | place | more


def _serve(tmp_path: Path, environment: dict[str, str]) -> tuple[int, str]:
    ended = run_memrelay(
        ["serve", "--port", "0", "--log-format", "json", "--data", str(tmp_path)], environment
    )
    assert SECRET_KEY not in ended.stdout + ended.stderr
    return ended.returncode, ended.stderr


def test_a_store_that_is_down_is_worth_another_try(tmp_path: Path) -> None:
    [port] = free_ports(1)
    code, said = _serve(tmp_path, _environment(f"http://127.0.0.1:{port}"))
    assert code == UNAVAILABLE
    assert "cannot be reached" in said
    assert "--endpoint-url" in said


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "AWS_ACCESS_KEY_ID"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "AWS_SECRET_ACCESS_KEY"),
        ({"MEMRELAY_STORE": "s3://nowhere/start"}, "there is no such bucket"),
        ({"AWS_ACCESS_KEY_ID": READER_KEY}, "s3:PutObject"),
    ],
    ids=["unknown-key", "wrong-secret", "no-bucket", "read-only"],
)
def test_what_an_operator_must_change_is_one_line_that_names_it(
    seaweed: S3Server, tmp_path: Path, change: dict[str, str], fix: str
) -> None:
    code, said = _serve(tmp_path, _environment(seaweed.url) | change)
    assert code == MISCONFIGURED
    [line] = [line for line in said.splitlines() if line.startswith("memrelay: ")]
    assert fix in line


def test_a_certificate_of_one_s_own_authority_is_refused_until_it_is_trusted(
    seaweed: S3Server, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    with proxied(seaweed.url, both) as proxy:
        code, said = _serve(tmp_path, _environment(proxy.url))
        assert code == MISCONFIGURED
        assert "AWS_CA_BUNDLE" in said
        probed = run_memrelay(["store", "probe"], _environment(proxy.url, AWS_CA_BUNDLE=str(certificate)))
    assert probed.returncode == 0, probed.stdout + probed.stderr


def test_missing_rights_over_versions_are_a_warning_where_none_are_kept_and_an_end_where_some_are(
    seaweed: S3Server, serve: Callable[..., Served], tmp_path: Path
) -> None:
    bucket = f"start-{secrets.token_hex(4)}"
    seaweed.admin.create_bucket(Bucket=bucket)
    with proxied(seaweed.url) as proxy:
        proxy.set(refuse(403, "AccessDenied"), method="GET", key=r"\?.*versions")
        served = serve(environment=_environment(proxy.url, bucket))
        assert '"erasing_needs_more"' in served.log.read_text()
        assert "s3:ListBucketVersions" in served.log.read_text()
        assert httpx.get(f"{served.url}/ready", trust_env=False).json()["ready"] is True
        seaweed.admin.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        # The probe of the first start is on record, and what erasing needs is looked at all the same.
        code, said = _serve(tmp_path, _environment(proxy.url, bucket))
    assert code == MISCONFIGURED
    assert "s3:ListBucketVersions" in said
    assert "keeps versions" in said


def test_a_relayer_whose_store_hangs_ends_in_time(seaweed: S3Server, serve: Callable[..., Served]) -> None:
    with proxied(seaweed.url) as proxy:
        served = serve("--probe", "off", environment=_environment(proxy.url))
        proxy.set(delay(proxy, 60.0))
        ready = httpx.get(f"{served.url}/ready", trust_env=False, timeout=20)
        assert ready.json()["checks"]["store"].startswith("silent: ")
        # What is asked already has ten seconds to be answered; the rest ends at once.
        assert served.stop(patience=25.0) == 0
