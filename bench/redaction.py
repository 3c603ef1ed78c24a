"""How many secrets the redaction finds, and how much ordinary text it leaves alone.

    python -m bench.redaction [--failures]

The labelled set holds no secret: each is put together here, from parts and a seed, so that no scanner takes the file
for a leak. A case counts as found when no part of its secret is left, as passed when the text is unchanged. The half
marked ``unseen`` was drawn at random before the rules were written; only its totals were ever looked at.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relayer.wire.redaction import redact

SET = Path(__file__).parent / "sets" / "redaction.jsonl"
SPOKEN = SET.with_name("redaction_spoken.jsonl")
_ALPHABETS = {
    "digit": "0123456789",
    "hex": "0123456789abcdef",
    "upper": "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "alpha": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "alnum": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "url": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_",
    "b64": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/",
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "base32": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
}
_DRAWN = re.compile(r"<([a-z0-9-]+):(\d+)>")


@dataclass(frozen=True)
class Case:
    number: int
    text: str
    secrets: tuple[str, ...]
    must_redact: bool
    unseen: bool
    kind: str


def load(path: Path = SET) -> list[Case]:
    return [_case(json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def _case(row: dict[str, Any]) -> Case:
    rng = random.Random(row["id"])
    made = [_built(parts, rng) for parts in row.get("parts", [])]
    text = re.sub(
        r"\{(\d)\}", lambda match: made[int(match[1])] if int(match[1]) < len(made) else match[0], row["text"]
    )
    return Case(row["id"], text, tuple(made), row["redact"], row["unseen"], row.get("class", ""))


def _built(parts: list[str], rng: random.Random) -> str:
    text = ""
    for part in parts:
        drawn = _DRAWN.fullmatch(part)
        if drawn is None:
            text += part
        elif drawn[1].startswith("luhn"):
            text = _card(text, int(drawn[2]), drawn[1].removeprefix("luhn").lstrip("-"), rng)
        else:
            text += _drawn(_ALPHABETS[drawn[1]], int(drawn[2]), rng)
    return text


def _drawn(alphabet: str, size: int, rng: random.Random) -> str:
    """Draw until letters and digits are both there, where the alphabet has both: what real issuers draw has them."""
    mixed = any(char.isdigit() for char in alphabet) and any(char.isalpha() for char in alphabet) and size > 3
    while True:
        text = "".join(rng.choice(alphabet) for _ in range(size))
        if not mixed or (any(char.isdigit() for char in text) and any(char.isalpha() for char in text)):
            return text


def _card(prefix: str, size: int, grouping: str, rng: random.Random) -> str:
    body = prefix + "".join(rng.choice("0123456789") for _ in range(size - 1))
    total = sum(
        sum(divmod(2 * int(digit), 10)) if index % 2 == 0 else int(digit)
        for index, digit in enumerate(reversed(body))
    )
    number = body + str(-total % 10)
    between = {"spaced": " ", "dashed": "-"}.get(grouping, "")
    return between.join(number[at : at + 4] for at in range(0, len(number), 4)) if between else number


def is_right(case: Case) -> bool:
    found = redact(case.text)
    if not case.must_redact:
        return found.text == case.text
    return bool(found.kinds) and not any(secret in found.text for secret in case.secrets)


def measure(cases: list[Case]) -> dict[str, float | int]:
    found = sum(case.must_redact and is_right(case) for case in cases)
    alarms = sum(not case.must_redact and not is_right(case) for case in cases)
    wanted = sum(case.must_redact for case in cases)
    return {
        "cases": len(cases),
        "must_redact": wanted,
        "found": found,
        "false_alarms": alarms,
        "precision": round(found / (found + alarms), 3) if found + alarms else 0.0,
        "recall": round(found / wanted, 3) if wanted else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--failures", action="store_true", help="print the failing cases of the half that may be seen"
    )
    options = parser.parse_args()
    cases = [*load(), *load(SPOKEN)]
    report = {
        "set_sha256": hashlib.sha256(SET.read_bytes()).hexdigest(),
        "seen": measure([case for case in cases if not case.unseen]),
        "unseen": measure([case for case in cases if case.unseen]),
    }
    print(json.dumps(report, indent=2))
    if options.failures:
        for case in cases:
            if not case.unseen and not is_right(case):
                print(case.number, case.kind or "must pass", "|", case.text, "->", redact(case.text).text)


if __name__ == "__main__":
    main()
