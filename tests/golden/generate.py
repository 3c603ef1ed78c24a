"""Writes a golden bucket, its backup, and the list of stored fields of what is written now.

    python tests/golden/generate.py format-1-index-2

It is named by the formats of the log and of its indexes. An existing one is never written again: it stands for what is in
users' stores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    from golden_site import generate
    from stored_fields import stored_fields

    folder = generate(sys.argv[1])
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in stored_fields().items()]
    (folder / "fields.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"wrote {folder}; commit it, and add it to BUCKETS in golden_site.py")


if __name__ == "__main__":
    main()
