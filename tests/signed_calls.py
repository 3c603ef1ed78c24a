"""The gateway of `relayer.testing` that signs, under the names that tests know it by."""

from relayer.testing.signing_gateway import AGENT, encode
from relayer.testing.signing_gateway import SigningGateway as Gateway

__all__ = ["AGENT", "Gateway", "encode"]
