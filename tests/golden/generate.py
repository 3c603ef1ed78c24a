"""Write the golden bucket, its backup, what it says, and the list of stored fields.

    python tests/golden/generate.py

Until the first release it replaces the bucket, because there are no stores of users yet. Commit the result together with the
change of the format and of docs/format.md.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    from golden_site import BUCKET, generate

    generate()
    print(f"wrote {BUCKET}; commit it")


if __name__ == "__main__":
    main()
