"""What an operator has to do about a refusal, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PERMISSIONS", "advice_on"]

# What each request needs, as the permissions are called in policies.
PERMISSIONS = {
    "get_object": "s3:GetObject, and s3:ListBucket on the bucket (without it an absent object looks forbidden)",
    "put_object": "s3:PutObject, and s3:GetObject for conditions",
    "delete_object": "s3:DeleteObject, and s3:DeleteObjectVersion for versions",
    "list_objects_v2": "s3:ListBucket",
    "list_object_versions": "s3:ListBucketVersions",
}

_CREDENTIALS = (
    "the credentials are not accepted: look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN"
)
_NO_CREDENTIALS = "no credentials were found: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role of this machine"
_REGION = (
    "the bucket is in another region or at another address: give its own with --region or --endpoint-url"
)
_BUCKET = "there is no such bucket: make it, or put --store right"

_BY_CODE = {
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "PermanentRedirect": _REGION,
    "TemporaryRedirect": _REGION,
    "Redirect": _REGION,
    "301": _REGION,
    "302": _REGION,
    "307": _REGION,
    "308": _REGION,
    "NoSuchBucket": _BUCKET,
    "InvalidBucketName": _BUCKET,
    "ParamValidationError": _BUCKET,
    "ExpiredToken": _CREDENTIALS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "TokenRefreshRequired": _CREDENTIALS,
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": _NO_CREDENTIALS,
    "RequestTimeTooSkewed": "this machine's clock is more than 15 minutes away from the server's: set it",
    "RequestExpired": "this machine's clock is behind the server's: set it",
    "NotImplemented": "the server does not implement conditional writes or this request: use another one",
    "NotS3": "this is no answer of an S3 server: look at --endpoint-url",
}
_CERTIFICATE = (
    "the server's certificate is not trusted: put its authority's PEM file in AWS_CA_BUNDLE, or use the host name that "
    "the certificate names in --endpoint-url"
)
_PLAIN = "the server does not speak TLS: give --endpoint-url with http://, or the server's TLS port"


def advice_on(
    code: str,
    operation: str,
    headers: Mapping[str, str],
    *,
    certificate: bool = False,
    plain: bool = False,
) -> str | None:
    """Return the fix for a refusal, None when none is known.

    Args:
        code: the server's error code, or boto3's exception.
        operation: as boto3 calls it.
        headers: of the answer, by lower-case name.
        certificate: whether the server's certificate was refused.
        plain: whether the server does not speak TLS.
    """
    if certificate or plain:
        return _CERTIFICATE if certificate else _PLAIN
    if code in {"AccessDenied", "403", "401", "Forbidden", "Unauthorized"}:
        needed = PERMISSIONS.get(operation, "its permission")
        return f"access denied: the credentials need {needed}; a bucket policy can refuse it too"
    advice = _BY_CODE.get(code)
    region = headers.get("x-amz-bucket-region")
    return f"{advice} (the server says: region {region[:40]})" if advice == _REGION and region else advice
