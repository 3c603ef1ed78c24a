"""How much the statements extractor keeps, and how much of what is asked for later it keeps.

    python bench/extraction.py [--data ../shared/data/locomo-dev.json] [--labels bench/sets/extraction.json] [--json out.json]

On LoCoMo every turn is a user's turn; a turn is evidence when a question names it. On the labelled set each message
says whether it should be kept. Nothing is random: the same input prints the same numbers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relayer.extraction.statements import ConversationTurn, StatementExtractor
from relayer.wire.fields import Role

DEFAULT_LABELS = Path(__file__).parent / "sets" / "extraction.json"


def kept_ids(turns: list[ConversationTurn]) -> set[str]:
    return {turn_id for candidate in StatementExtractor().extract(turns) for turn_id in candidate.turn_ids}


def share(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def locomo(path: Path) -> dict[str, Any]:
    turns = kept = evidence = kept_evidence = 0
    by_question: list[float] = []
    for conversation in json.loads(path.read_text("utf-8"))["conversations"]:
        known = [
            ConversationTurn(role=Role.USER, text=turn["text"], turn_id=turn["id"], speaker=turn["speaker"])
            for turn in conversation["turns"]
        ]
        ids = {turn.turn_id for turn in known}
        keeps = kept_ids(known)
        questions = [set(q["evidence"]) & ids for q in conversation["questions"] if q["cat"] != "adversarial"]
        asked = set().union(*questions)
        turns += len(known)
        kept += len(keeps)
        evidence += len(asked)
        kept_evidence += len(asked & keeps)
        by_question += [len(wanted & keeps) / len(wanted) for wanted in questions if wanted]
    return {
        "turns": turns,
        "kept_percent": share(kept, turns),
        "evidence_turns": evidence,
        "evidence_kept_percent": share(kept_evidence, evidence),
        "evidence_kept_percent_mean_over_questions": round(100 * sum(by_question) / len(by_question), 1),
    }


def labelled(cases: Iterable[dict[str, Any]]) -> dict[str, Any]:
    hits = misses = false = silent = 0
    wrong: list[str] = []
    for case in cases:
        keeps = bool(
            StatementExtractor().extract(
                [ConversationTurn(role=Role(case["role"]), text=case["text"], turn_id="t")]
            )
        )
        hits += keeps and case["keep"]
        misses += not keeps and case["keep"]
        false += keeps and not case["keep"]
        silent += not keeps and not case["keep"]
        if keeps != case["keep"]:
            wrong.append(f"{'missed' if case['keep'] else 'kept'} {case['role']}: {case['text'][:90]}")
    return {
        "cases": hits + misses + false + silent,
        "recall_percent": share(hits, hits + misses),
        "precision_percent": share(hits, hits + false),
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a LoCoMo file in the cleaned format")
    parser.add_argument("--labels", type=Path, default=DEFAULT_LABELS, help="labelled messages")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    if options.data:
        report["locomo"] = locomo(options.data)
    if options.labels.exists():
        cases = json.loads(options.labels.read_text("utf-8"))
        for part in ("tuning", "held_out"):
            for role in ("user", "assistant"):
                chosen = [case for case in cases[part] if case["role"] == role]
                report[f"{part}_{role}"] = labelled(chosen)
    print(json.dumps(report, indent=2, ensure_ascii=False))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
