"""Learn how much a prompt's form and its best memory's evidence say together, from the day's seen half.

    python -m bench.judgement priors      # measure the nulls by language, and write relayer/search/data/priors.json
    python -m bench.judgement             # print the shares of `relayer.search.ranking`, and what they tell and inject

Readings are of prompts that their weights were not learnt from; evidence is of namespaces with what each persona says. The
last line is what `relayer.search.ranking` does with them as it stands, where each namespace is asked the unrelated prompts of
all personas of its language: of them there are few, and they decide where one in a hundred lies.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from bench.day import personas
from bench.prompt_reader import (
    Case,
    asks,
    concerns,
    held_out,
    labelled,
    network,
    of_the_day,
    purposes,
    with_model,
)
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.lib.n_grams import LANGUAGES, PromptReading
from relayer.search.baseline import ENGLISH, PRIORS, Calibration, fit_prior, shipped_priors
from relayer.search.index import MemoryIndex
from relayer.search.ranking import Prior, in_steps, judged_steps

_STATEMENTS = Path(__file__).parent / "sets" / "statements"
_PRIORS = Path(__file__).parents[1] / "relayer" / "search" / "data" / "priors.json"
_PROMPTS = 120
Row = tuple[str, int, str, float, float, float]
"""Language, number of the persona, label, steps of the evidence, and what was read of the prompt's form."""


def _points(prior: Prior) -> list[list[float]]:
    return [[size, round(null.median, 3), round(null.high, 3)] for size, null in prior.points]


async def priors() -> None:
    """Measure, for both local models, what unrelated prompts of each language find among statements in it."""
    unrelated: dict[str, list[str]] = {language: [] for language in LANGUAGES}
    for language, label, text in labelled():
        if label == "none":
            unrelated[language].append(text)
    stored: dict[str, dict[str, Any]] = {}
    for kind in ("local", "multilingual"):
        embedder = LocalEmbedder(kind)  # type: ignore[arg-type]
        await embedder.load()
        found = stored[embedder.model.sha256] = {}
        for language in LANGUAGES:
            if language == ENGLISH:
                continue
            texts = tuple((_STATEMENTS / f"{language}.txt").read_text("utf-8").splitlines())
            step = max(len(unrelated[language]) // _PROMPTS, 1)
            prompts = tuple(unrelated[language][::step][:_PROMPTS])
            rows, asked = await embedder.embed(texts), await embedder.embed(prompts, query=True)
            found[language] = _points(fit_prior(rows, asked, texts, prompts))
            print(kind, language, found[language], flush=True)
        await embedder.close()
    _PRIORS.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")


async def judgement(kind: str) -> None:
    """Print the shares for a model."""
    embedder = LocalEmbedder(kind)  # type: ignore[arg-type]
    await embedder.load()
    day = of_the_day("seen")
    logits = await _readings(embedder, day)
    sha256 = embedder.model.sha256
    prior = Calibration(PRIORS[sha256], (), shipped_priors(sha256), sha256)
    rows: list[Row] = []
    crossed: list[Row] = []
    strangers = unrelated_by_language(day, logits)
    at = 0
    for number, one in enumerate(personas("seen")):
        raw = one.raw
        texts = [text for fact in raw["facts"] for text in (*fact["said"], fact["reply"])]
        texts += [item["then"] for item in raw["corrections"]] + [item["said"] for item in raw["short"]]
        texts += [text for item in raw["compatible"] for text in (item["first"], item["then"])]
        index = MemoryIndex(384, prior)
        for key, (row, text) in enumerate(zip(await embedder.embed(texts), texts, strict=True)):
            index.put(key, row, text)
        mine = of_persona(one.raw)
        vectors = await embedder.embed([text for _, text in mine], query=True)
        for (label, text), vector in zip(mine, vectors, strict=True):
            reading = PromptReading(
                one.language, float(asks(logits[[at]])[0]), float(concerns(logits[[at]])[0])
            )
            found = index.search(vector, text, 5, floor=0.0, reading=reading).judgement
            steps = in_steps(found.best or 0.0, found.null)
            rows.append((one.language, number, label, steps, reading.asks, reading.concerns))
            at += 1
        theirs = strangers[one.language]
        vectors = await embedder.embed([text for text, _ in theirs], query=True)
        for (text, reading), vector in zip(theirs, vectors, strict=True):
            found = index.search(vector, text, 5, floor=0.0, reading=reading).judgement
            steps = in_steps(found.best or 0.0, found.null)
            crossed.append((one.language, number, "none", steps, reading.asks, reading.concerns))
    _fit(kind, rows)
    _shipped(embedder.model.sha256, [row for row in rows if row[2] != "none"] + crossed)
    await embedder.close()


def unrelated_by_language(
    day: list[Case], logits: NDArray[np.float32]
) -> dict[str, list[tuple[str, PromptReading]]]:
    """The unrelated prompts of all personas of a language, with what was read of each."""
    found: dict[str, list[tuple[str, PromptReading]]] = {language: [] for language in LANGUAGES}
    for (language, label, text), row in zip(day, logits, strict=True):
        if label == "none":
            reading = PromptReading(language, float(asks(row[None])[0]), float(concerns(row[None])[0]))
            found[language].append((text, reading))
    return found


def _shipped(model: str, rows: list[Row]) -> None:
    for what in ("ask", "plan", "none"):
        mine = [judged_steps(*row[3:], model) >= 1 for row in rows if row[2] == what]
        print(f"as it stands, {what}: {100 * np.mean(mine):.2f} % of {len(mine)}")


def of_persona(raw: dict[str, Any]) -> list[tuple[str, str]]:
    """Label and text of a persona's prompts, in the order of `bench.prompt_reader.of_the_day`."""
    asked = [("ask", item["ask"]) for part in ("questions", "short", "corrections") for item in raw[part]]
    asked += [("none", text) for text in raw["unrelated"]]
    return asked + [("plan", item["prompt"]) for item in raw["touching"]]


async def _readings(embedder: LocalEmbedder, day: list[Case]) -> NDArray[np.float32]:
    cases = labelled()
    learnt = held_out([*cases, *day])
    if embedder.model.sha256 not in _with_head():
        return learnt[len(cases) :]
    everything = await embedder.embed([text for *_, text in [*cases, *day]], query=True)
    rows = with_model(learnt, everything)
    numbers = np.array(purposes([*cases, *day]))
    found = np.zeros((len(day), 3), np.float32)
    fold = np.arange(len(day)) % 5
    for one in range(5):
        inside = np.r_[np.arange(len(cases)), len(cases) + np.flatnonzero(fold != one)]
        learnt_of = network(rows[inside], numbers[inside].tolist())
        found[fold == one] = learnt_of.logits(rows[len(cases) + np.flatnonzero(fold == one)])
    return found


def _with_head() -> set[str]:
    return {"3baa718a3a42454f99e560e1ccfa8cdea10c8477b691cda31e3e8b074a7155b4"}


def _fit(kind: str, rows: list[Row]) -> None:
    label = np.array([row[2] for row in rows])
    numbers = np.array([row[3:] for row in rows])
    numbers[:, 1:] = numbers[:, 1:].clip(-6, 6)
    language = np.array([row[0] for row in rows])
    chosen = label != "plan"
    fitted = LogisticRegression(C=10).fit(numbers[chosen], label[chosen] == "ask")
    score = fitted.decision_function(numbers)
    bar, middle = np.quantile(score[label == "none"], [0.99, 0.5])
    # One step where one unrelated prompt in a hundred stands; the width that evidence alone would have.
    weights, scale = fitted.coef_[0], (bar - middle)
    shares = weights / scale
    rest = 1 - bar / scale + fitted.intercept_[0] / scale
    print(
        f"{kind}: evidence {shares[0]:.3f}, asks {shares[1]:.3f}, concerns {shares[2]:.3f}, rest {rest:.3f}"
    )
    steps = numbers @ shares + rest
    for what in ("ask", "plan", "none"):
        told = {
            one: 100 * (steps[(label == what) & (language == one)] > 1).mean()
            for one in sorted(set(language))
        }
        print(what, f"{100 * (steps[label == what] > 1).mean():.1f}", {k: round(v) for k, v in told.items()})


if __name__ == "__main__":
    if "priors" in sys.argv[1:]:
        asyncio.run(priors())
    else:
        for name in ("local", "multilingual"):
            asyncio.run(judgement(name))
