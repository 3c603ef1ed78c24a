"""The relayer of `relayer.testing` inside a test's own process, under the names that tests know it by."""

from relayer.testing.local_relayer import LocalRelayer as Border
from relayer.testing.local_relayer import local_relayer as border

__all__ = ["Border", "border"]
