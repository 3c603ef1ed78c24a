"""What an operator has to do about a refusal: one stable word and one sentence."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PERMISSIONS", "Advice", "advice_on"]

# What each request needs, as the permissions are called in policies.
PERMISSIONS = {
    "get_object": "s3:GetObject, and s3:ListBucket on the bucket (without it an absent object looks forbidden)",
    "put_object": "s3:PutObject, and s3:GetObject for conditions",
    "delete_object": "s3:DeleteObject, and s3:DeleteObjectVersion for versions",
    "list_objects_v2": "s3:ListBucket",
    "list_object_versions": "s3:ListBucketVersions",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """A word for what is wrong, for machines and tables, and the fix; neither names anything of the deployment."""

    code: str
    fix: str


_CREDENTIALS = Advice(
    "credentials_refused",
    "the credentials are not accepted: look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
)
_NO_CREDENTIALS = Advice(
    "no_credentials",
    "no credentials were found: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role of this machine",
)
_REGION = Advice(
    "elsewhere",
    "the bucket is in another region or at another address: give its own with --region or --endpoint-url",
)
_BUCKET = Advice("no_such_bucket", "there is no such bucket: make it, or put --store right")
_CLOCK = Advice(
    "clock_refused", "this machine's clock is more than 15 minutes away from the server's: set it"
)
_LATE = Advice("clock_refused", "this machine's clock is behind the server's: set it")
_NOT_OFFERED = Advice(
    "not_implemented",
    "the server does not implement conditional writes or this request: use another one",
)
_NOT_S3 = Advice("not_s3", "this is no answer of an S3 server: look at --endpoint-url")
_REFUSED = Advice("refused", "the server refuses the request")

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
    "RequestTimeTooSkewed": _CLOCK,
    "RequestExpired": _LATE,
    "NotImplemented": _NOT_OFFERED,
    "NotS3": _NOT_S3,
}
_CERTIFICATE = Advice(
    "certificate_not_trusted",
    "the server's certificate is not trusted: put its authority's PEM file in AWS_CA_BUNDLE, or use the host name that "
    "the certificate names in --endpoint-url",
)
_PLAIN = Advice(
    "no_tls",
    "the server does not speak TLS: give --endpoint-url with http://, or the server's TLS port",
)
_DENIED = frozenset({"AccessDenied", "403", "401", "Forbidden", "Unauthorized"})
# What a stranger's page is answered with: a server of S3 would have said more.
_STRANGE = frozenset({200, 404, 405})


def advice_on(
    code: str,
    operation: str,
    *,
    status: int = 0,
    certificate: bool = False,
    plain: bool = False,
) -> Advice | None:
    """Return the fix for a refusal, None when none is known and no server answered.

    Args:
        code: the server's error code, or boto3's exception.
        operation: as boto3 calls it.
        status: of the answer, 0 without one.
        certificate: whether the server's certificate was refused.
        plain: whether the server does not speak TLS.
    """
    if certificate or plain:
        return _CERTIFICATE if certificate else _PLAIN
    if code in _DENIED:
        needed = PERMISSIONS.get(operation, "its permission")
        return Advice(
            "access_denied",
            f"access denied: the credentials need {needed}; a bucket policy or an object lock can refuse it too",
        )
    if code in _BY_CODE or not status:
        return _BY_CODE.get(code)
    return _NOT_S3 if status in _STRANGE else _REFUSED
