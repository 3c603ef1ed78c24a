"""Make the weights of `relayer.lib.n_grams.read_message` from labelled messages, and say how right they are.

    python -m bench.message_reader            # five folds, then what the seen half of the day's sets says
    python -m bench.message_reader --write    # learns from all messages and writes the file of weights

Needs scikit-learn, of the extra ``bench``. The same messages give the same file.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any
from zlib import crc32

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bench import prompt_reader, standing
from bench.conversations import plain
from bench.day import personas
from bench.prompt_reader import hash_of, learn, scores
from bench.weeks import weeks
from relayer.extraction.words import split_sentences
from relayer.lib.n_grams import BUCKETS, KINDS, MESSAGE_BUCKETS, MESSAGE_CLASSES, fold_digits

SETS = Path(__file__).parent / "sets"
MESSAGES = SETS / "messages"
LABELLED_KINDS = SETS / "kinds"
UNREAL_TEXTS = SETS / "unreal"
SAID = SETS / "said"
BRIEF = SETS / "brief"
STATEMENTS = SETS / "statements"
RELATIONS = SETS / "relations" / "templates"
WEIGHTS = Path(__file__).parents[1] / "relayer" / "lib" / "data" / "message_reader.npz"
# Inverse strength of regularisation, chosen on the seen half.
_STRENGTH = 8.0
_FOLDS = 5
# A fact that is dropped is gone; what is kept for nothing is ranked low.
_KEPT = 0.98
# How much a statement of the sets for relations counts, of which there are many alike, and a message of a rare class.
_IN_PAIRS = 0.5
_COUNTS = {"hedge": 2.0, "courtesy": 2.0, "unreal": 3.2, "one_off": 1.6, "question": 1.6}
Case = tuple[str, str, str]
"""Language, class, text."""


# Of each language, so many prompts of each purpose are learnt from: there are many more of them than of messages.
_PROMPTS = {"ask": ("question", 300), "none": ("one_off", 120), "plan": ("one_off", 60)}
_SIDE = {"wish": "hedge", "supposed": "unreal", "quoted": "unreal", "invented": "unreal"}
_SIDE |= {label: label for label in ("question", "one_off", "courtesy", "reply", "result")}
# Texts up to so many characters are joined with another one.
_SHORT = 100
_FRAMED = re.compile(
    r"[\"\u201c\u00ab\u300c]\s*([^\"\u201d\u00bb\u300d]{6,})|(?<!\w)'([^']{6,})'|[:\uff1a]\s*([^\"\u201c\u00ab\u300c']{6,})$"
)
# What people put behind a statement to have it confirmed.
_TAGS = {
    "ar": ("\u060c صح\u061f", "\u060c تمام\u061f"), "de": (", oder?", ", ok?"), "en": (", right?", ", ok?"), "es": (", vale?", "\u00bfno?"),
    "fr": (", d'accord ?", ", hein ?"), "hi": (", ठीक है?", ", है ना?"), "it": (", va bene?", ", no?"), "ja": ("、いいですか\uff1f", "、よね\uff1f"),
    "ko": (", 알겠지?", ", 맞지?"), "nl": (", oké?", ", toch?"), "pl": (", dobrze?", ", prawda?"), "pt": (", tá?", ", certo?"),
    "ru": (", хорошо?", ", да?"), "tr": (", tamam m\u0131?", ", değil mi?"), "zh": ("\uff0c好吗\uff1f", "\uff0c对吧\uff1f"),
}  # fmt: skip


def _lines(folder: Path) -> list[Case]:
    return [
        (path.stem, label, text.replace("\\n", "\n"))
        for path in sorted(folder.glob("*.tsv"))
        for label, text in (line.split("\t", 1) for line in path.read_text("utf-8").splitlines())
    ]


def labelled() -> list[Case]:
    """The messages that were written to learn from."""
    return _lines(MESSAGES)


def unreal() -> list[Case]:
    """Fictions, hypotheses and quotations, and requests and statements that resemble them."""
    return _lines(UNREAL_TEXTS)


def said() -> list[Case]:
    """What people type and what assistants reply, half of it messy, and what each is close to."""
    return _lines(SAID)


def brief(*, left_out: bool = False) -> list[Case]:
    """Short news ("sold the bike"), what was said before it, and texts of the same words that are of use only now."""
    found = []
    for path in sorted((BRIEF / "left_out" if left_out else BRIEF).glob("*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            label, text, before = line.split("\t")
            lang = path.stem.partition("_")[0]
            found += [(lang, label, text), *([(lang, "keep", before)] if before else [])]
    return found


def of_weeks(*, left_out: bool = False) -> list[Case]:
    """What people typed in weeks of chats, by message and by sentence: what is worth keeping of it is marked."""
    found = []
    for name, turns in weeks(left_out=left_out):
        for turn in turns:
            said, facts = turn["user"], [plain(fact) for fact in turn.get("facts", ())]
            parts = [said[start:end] for start, end in split_sentences(said)]
            for text in dict.fromkeys((said, *parts)):
                keep = any(fact in plain(text) or plain(text).strip(" .,;!") in fact for fact in facts)
                asks = text.rstrip().endswith(("?", "\uff1f", "\u061f"))
                label = "question" if asks else _OTHERWISE.get(turn["kind"], "")
                if keep or label:
                    found.append((name.split("-")[1], "keep" if keep else label, text))
    return found


# The classes of what is not worth keeping in turns of weeks of chats; in other turns, it is not known.
_OTHERWISE = {
    **dict.fromkeys(("ask", "old", "never"), "question"), **dict.fromkeys(("plan", "none", "remark"), "one_off"), "fiction": "unreal",
}  # fmt: skip


def kinds() -> list[Case]:
    """Statements by their kind: about the speaker, a person, a thing, or no statement in earnest."""
    return _lines(LABELLED_KINDS)


def learnt_from(more: Iterable[Case] = ()) -> list[Case]:
    """All that the classifiers of messages learn from: messages, statements, prompts, and variants in which both are typed."""
    cases = [*labelled(), *more]
    cases += [(lang, _SIDE.get(kind, "keep"), text) for lang, kind, text in kinds()]
    cases += [(lang, "keep", text) for lang, label, text in standing.labelled() if label != "none"]
    cases += _of_sessions()
    cases += [
        (path.stem, "keep", text)
        for path in sorted(STATEMENTS.glob("*.txt"))
        for text in path.read_text("utf-8").splitlines()
    ]
    cases += _of_people()
    taken: dict[tuple[str, str], int] = defaultdict(int)
    for lang, purpose, text in sorted(prompt_reader.labelled(), key=lambda case: _place(case[2])):
        label, most = _PROMPTS[purpose]
        taken[lang, purpose] += 1
        if taken[lang, purpose] <= most * (3 if lang == "en" else 1):
            cases.append((lang, label, text))
    cases += _unframed(cases)
    variants = [variant for case in cases for variant in _variants(case)]
    return [*cases, *_compounds(cases), *variants, *in_pairs()]


def in_pairs() -> list[Case]:
    """The short statements of the sets for relations, all of which are to be kept."""
    random = Random(3)
    said: list[tuple[str, str]] = []
    for path in [
        *sorted(RELATIONS.glob("*.txt")),
        *sorted((SETS / "precise" / "train" / "relations").glob("*.txt")),
    ]:
        values: list[str] = []
        for line in path.read_text("utf-8").splitlines():
            kind, _, rest = line.partition(" ")
            if kind in {"R", "B", "F", "M"}:
                said += [(path.stem, text) for text in rest.split(" || ")]
            elif kind in set("SCDON"):
                said.append((path.stem, rest.replace("{v}", random.choice(values))))
            elif line.startswith("@"):
                values = line.partition(" v=")[2].split("|")
    for path in sorted((SETS / "changes").glob("*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            said += [(path.stem, text) for text in line.split("\t")[:2]]
    said += _in_lists(random)
    for path in sorted((SETS / "relations" / "families").glob("*.txt")):
        lines = path.read_text("utf-8").splitlines()
        said += [(path.stem.partition("-")[0], line[2:]) for line in lines if line[:2] in {"O ", "R "}]
    for path in sorted((SETS / "relations" / "lives").glob("*.txt")):
        said += [(path.stem.partition("-")[0], line) for line in path.read_text("utf-8").splitlines() if line]
    return [(lang, "keep", text) for lang, text in dict.fromkeys(said)]


def _in_lists(random: Random) -> Iterator[tuple[str, str]]:
    """Yield the language and text of statements in the lists of pairs, and two of each template of a family."""
    lang, names, values = "", [""], [""]
    for name in ("pairs", "contrasts"):
        for line in (SETS / "relations" / f"{name}.txt").read_text("utf-8").splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "=":
                lang = rest
            elif kind == "@":
                first, _, second = rest.partition(" v=")
                names, values = first.removeprefix("n=").split("|"), second.split("|")
            elif kind in {"T", "K"}:
                for _ in range(2):
                    yield (
                        lang,
                        rest.replace("{n}", random.choice(names)).replace("{v}", random.choice(values)),
                    )
            elif kind in {"R", "B"}:
                yield from ((lang, text) for text in rest.split(" || "))


def _compounds(cases: Sequence[Case]) -> list[Case]:
    """Facts inside of requests and in front of questions, which are to be kept."""
    by_language: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for lang, label, text in cases:
        if label in {"keep", "one_off", "question"} and len(text) < _SHORT:
            by_language[lang, label == "keep"].append(text)
    found = []
    for (lang, keep), facts in by_language.items():
        others = sorted(by_language[lang, False], key=_place)
        places = [_place(other) for other in others]
        for text in facts if keep and others else ():
            number = _place(text)
            # One more text changes few pairs, so that little of what is learnt changes.
            other = others[bisect(places, number) % len(others)]
            pair = (text, other) if number % 2 else (other, text)
            between = (", ", " ", ". ", "\n")[number // 2 % 4]
            found.append((lang, "keep", between.join((pair[0].rstrip(".! 。"), pair[1]))))
    return found


def _place(text: str) -> int:
    return crc32(text.encode())


def _of_sessions() -> list[Case]:
    """Labelled messages of sessions at work, of the halves that may be looked at."""
    cases = json.loads((SETS / "extraction.json").read_text("utf-8"))["tuning"]
    for row in map(json.loads, (SETS / "transcripts.jsonl").read_text("utf-8").splitlines()):
        cases += [] if row["unseen"] else row["turns"]
    labels = {
        ("user", True): "keep",
        ("user", False): "one_off",
        ("assistant", True): "result",
        ("assistant", False): "reply",
    }
    return [
        ("en", labels[case["role"], case["keep"]], case["text"])
        for case in cases
        if (case["role"], case["keep"]) in labels
    ]


def _of_people() -> list[Case]:
    """What the people of the sets for precise memory say, of the half to learn from."""
    cases = []
    for path in sorted((SETS / "precise" / "train" / "people").glob("*.json")):
        one = json.loads(path.read_text("utf-8"))
        texts = [("keep", text) for text in one["memories"]]
        texts += [("unreal", item["said"]) for item in one["fictions"]]
        texts += [("question", item["ask"]) for item in one["questions"]]
        texts += [("one_off", text) for text in (*one["untouched"], *(plan["ask"] for plan in one["plans"]))]
        cases += [(one["language"], label, text) for label, text in texts]
    return cases


# Labels that are another kind of memory.
_KIND_OF = {"person": "fact", "thing": "fact", "wish": "statement", "hush": "preference"}


def of_kinds() -> list[Case]:
    """What the classifier of kinds learns from: statements, their kinds, and the same typed in a hurry."""
    cases = [case for case in kinds() if _SIDE.get(case[1], "hedge") == "hedge"]
    cases += [("", "preference", text) for _, label, text in standing.labelled()[::4] if label == "style"]
    cases += [(lang, kind, text.lower().rstrip(".!。 ")) for lang, kind, text in cases]
    return [(lang, _KIND_OF.get(kind, kind), text) for lang, kind, text in cases]


def kind_head() -> tuple[Any, Any]:
    """Weights and biases for the kind of a statement."""
    cases = of_kinds()
    return learn(
        [fold_digits(text) for *_, text in cases],
        [kind for _, kind, _ in cases],
        KINDS,
        _STRENGTH,
        balanced=True,
    )


def _unframed(cases: Sequence[Case]) -> Iterator[Case]:
    """Yield what is said in earnest if the words around it are left out: "translate: I am a nurse" without "translate:"."""
    for lang, label, text in cases:
        inner = _FRAMED.search(text) if label == "unreal" else None
        if inner is not None:
            yield lang, "keep", next(filter(None, inner.groups()))


def _variants(case: Case) -> list[Case]:
    """The same text as it is typed in a hurry, and a statement with a question behind it."""
    lang, label, text = case
    number = hash_of(text)
    found = []
    if label == "question" or number % 3 == 0:
        found.append(text.rstrip(".!?\uff1f\u061f。\u00bf ").lower())
    if label == "keep" and number % 4 == 1:
        found.append(text.rstrip(".! 。") + _TAGS[lang][number // 4 % 2])
    return [(lang, label, variant) for variant in found if variant and variant != text]


def of_the_day(half: str) -> list[Case]:
    """What the personas of a half say; of facts told in several messages the longest."""
    cases = []
    for one in personas(half):
        said = [max(fact["said"], key=len) for fact in one.raw["facts"]]
        said += [item["said"] for item in one.raw["short"]]
        said += [item["first"] for part in ("compatible", "corrections") for item in one.raw[part]]
        cases += [(one.language, "keep", text) for text in said]
        noise = [(item["role"], item["said"]) for item in one.raw["noise"]]
        cases += [(one.language, "one_off" if role == "user" else "reply", text) for role, text in noise]
    return cases


def _fold(text: str) -> int:
    """Return the fold of a text; variants of one text are in one fold."""
    return hash_of(text.lower().rstrip(".!?。 ")[:12]) % _FOLDS


def _read(text: str, side: str) -> str:
    """Return what the classifier of a side reads of a text, as `relayer.lib.n_grams.read_message` does."""
    return fold_digits(text) if side == "user" else text


def heads(cases: Iterable[Case]) -> dict[str, tuple[Any, Any]]:
    """Weights and biases for each side."""
    found = {}
    pairs = frozenset(in_pairs())
    for side, classes in MESSAGE_CLASSES.items():
        of_side = [case for case in cases if case[1] in classes]
        weights, bias = learn(
            [_read(case[2], side) for case in of_side],
            [case[1] for case in of_side],
            classes,
            _STRENGTH,
            buckets=MESSAGE_BUCKETS if side == "user" else BUCKETS,
            counts=[_IN_PAIRS if case in pairs else _COUNTS.get(case[1], 1.0) for case in of_side],
        )
        if len(classes) == 2:  # of two classes the library learns the difference
            weights, bias = np.hstack([-weights / 2, weights / 2]), np.r_[-bias / 2, bias / 2]
        found[side] = (weights.astype(np.float32), bias.astype(np.float32))
    return found


def worth(cases: Iterable[Case], side: str, learnt: tuple[Any, Any]) -> dict[str, dict[bool, list[float]]]:
    """As `relayer.lib.n_grams.MessageReading.worth`, by language and by whether it is to be kept."""
    of_side = [case for case in cases if case[1] in MESSAGE_CLASSES[side]]
    logits = scores([_read(case[2], side) for case in of_side], learnt)
    found: dict[str, dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (language, label, _), row in zip(of_side, logits, strict=True):
        value = float(row[0] - np.logaddexp.reduce(row[1:]))
        for name in (language, "all"):
            found[name][label == MESSAGE_CLASSES[side][0]].append(value)
    return found


def report(console: Console, title: str, found: dict[str, dict[bool, list[float]]]) -> None:
    """A line a language: where the bar lies that keeps what is to be kept, and how much else passes it."""
    table = Table(title=title, title_justify="left")
    for name in (
        "language",
        "to keep",
        "to leave",
        "bar",
        "left behind it pass",
        "of it pass 0",
        "kept at 0",
    ):
        table.add_column(name, justify="right")
    for language, sides in found.items():
        keep, leave = np.array(sides[True]), np.array(sides[False])
        bar = float(np.quantile(keep, 1 - _KEPT)) if len(keep) else 0.0
        shares = [
            100 * float((part > at).mean()) for part, at in ((leave, bar), (leave, 0), (keep, 0)) if len(part)
        ]
        row = (language, len(keep), len(leave), f"{bar:.2f}", *(f"{share:.1f}" for share in shares))
        table.add_row(*map(str, row))
    console.print(table)


def main(*, write: Annotated[bool, typer.Option("--write", help="Write the weights.")] = False) -> None:
    """Learn in folds, or from everything."""
    console = Console(width=120)
    cases = learnt_from()
    for side in MESSAGE_CLASSES:
        folds: dict[str, dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
        for number in range(_FOLDS):
            inside = [case for case in cases if _fold(case[2]) != number]
            outside = [case for case in cases if _fold(case[2]) == number]
            for language, sides in worth(outside, side, heads(inside)[side]).items():
                for kept, values in sides.items():
                    folds[language][kept] += values
        report(console, f"{side}: {_FOLDS} folds of the messages to learn from", dict(sorted(folds.items())))
    learnt = heads(cases)
    for side in MESSAGE_CLASSES:
        report(console, f"{side}: the day's seen half", worth(of_the_day("seen"), side, learnt[side]))
    if write:
        _write(learnt | {"kind": kind_head()})


def _write(learnt: dict[str, tuple[Any, Any]]) -> None:
    stored: dict[str, Any] = {}
    for side, (weights, bias) in learnt.items():
        scale = np.abs(weights).max(axis=0) / 127
        stored |= {
            side: np.round(weights / scale).astype(np.int8),
            f"{side}_scale": scale,
            f"{side}_bias": bias,
        }
    np.savez_compressed(WEIGHTS, **stored)
    sys.stdout.write(f"{WEIGHTS.stat().st_size:,} bytes written\n")


if __name__ == "__main__":
    typer.run(main)
