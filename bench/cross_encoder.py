"""Train the cross-encoder, which reads a prompt together with a memory, and learn how much its scores count.

    python -m bench.cross_encoder --cases FILE         # train, and write ``relayer/adapters/models/cross_encoder.npz``
    python -m bench.cross_encoder --cases FILE --on    # train it further, above all with the people of ``bench/sets/weeks``
    python -m bench.cross_encoder --weigh              # learn and write the weights in ``relayer/search/data/relevance.npz``

It learns from the candidates of searches: the memories that are right for a prompt, and the likeliest wrong ones beside them. It
starts from the reader of relations, which reads two texts together, too. All weights of `relayer.search.relevance` but those of the
contents are learnt from people whom no layer has learnt from (``second``, ``dev``, two authors of ``fourth``, and 28 people of
weeks), among all and among few memories: what layers say of people that they were trained with would count for too much. Training needs torch and about half an hour of two processors; both need
scikit-learn. The package's file was trained in six rounds of 1,500, 700, 630, 2,309, 1,341 and 1,246 batches, the last three with ``--on``:
the fourth with the people of ``third``, the fifth with those of ``fourth``, both with 0.4 of the other prompts, and the sixth with 108 people of
``bench/sets/weeks`` (authors a to o), with 0.4 of the prompts of half of the people of ``third`` and ``fourth`` and of a quarter of the first two sets;
it holds the mean of the weights before and after the sixth.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import io
import json
import pickle
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from bench.relevance import (
    AMONG_FEW,
    MODEL,
    WEIGHTS,
    Asked,
    Case,
    Kind,
    Numbers,
    Person,
    Prompts,
    chosen_for,
    counted,
    estimates,
    everyone,
    is_left_out,
    learn_logistic,
    of_people,
    of_weeks,
    searched,
    share,
)
from bench.spaces import people
from bench.svg import drawing
from relayer.adapters.local_embedder.e5 import E5, WeightsFile, halves, model_file
from relayer.adapters.local_embedder.trained import (
    READ_TOKENS,
    CrossEncoder,
    PromptReader,
    TrainedLayers,
    trained_file,
)
from relayer.search.relevance import (
    CandidateScores,
    Logistic,
    RelevanceReader,
    Relevances,
    features,
    relevance_reader,
    to_read,
    together_features,
    together_gate_features,
)

if TYPE_CHECKING:
    from torch import Tensor

# Of each kind of prompt, the share that is learnt from, and the number of wrong memories beside the right ones.
_SHARES: dict[Kind, tuple[float, int]] = {
    "question": (1.0, 4),
    "plan": (1.0, 4),
    "unanswerable": (1.0, 4),
    "untouched": (0.7, 3),
    "unrelated": (0.35, 2),
    "removed": (0.5, 3),
    "unneeded": (0.6, 3),
}
# Of questions and plans among memories of others, whose wrong memories are further away.
_OF_FILLED = 0.25
_COUNTS: dict[Kind, float] = {
    "question": 1.0,
    "plan": 1.3,
    "unanswerable": 0.8,
    "untouched": 1.0,
    "unrelated": 0.6,
    "removed": 0.7,
    "unneeded": 0.8,
}
_PROMPTS_OF_BATCH = 6
_RATE, _HEAD_RATE = 1.2e-4, 9.6e-4
# With ``--on``: the part of the rates, and of the prompts that were learnt from before.
_RATE_ON, _SHARE_ON = 0.5, 0.2
_WARM_UP = 80
_AVERAGED = 0.99
# The part of the loss that a right memory is above the wrong ones of its prompt.
_OF_ORDER = 0.3
# Weights of the prompts of clean people for the probability of memories, and for the admission.
_OF_MEMORY = {"question": 1.0, "plan": 3.0, "unanswerable": 0.7, "untouched": 0.8, "unrelated": 0.5}
_OF_PROMPT = {"question": 1.0, "plan": 1.3, "unanswerable": 0.15, "untouched": 1.5, "unrelated": 1.5}
# The logits from which a prompt is read with memories, and gets any.
_FIRST_BAR, _BAR = -1.25, -0.8
_FOLDS = 5
# The bars that are printed and drawn.
_BARS = (-2.2, -1.7, -1.2, -0.7, -0.2, 0.3, 0.8)
PICTURE = Path(__file__).parents[1] / "docs" / "quality" / "bars.svg"

States = dict[str, NDArray[np.float16]]
"""The hidden states of texts after the lower layers."""


@dataclass(slots=True)
class Group:
    """A prompt with memories, each of which is right (1) or wrong (0)."""

    prompt: str
    kind: Kind
    texts: list[str]
    right: list[float]


def groups(cases: Sequence[Case], *, on: bool) -> Iterator[Group]:
    """Yield what is learnt from: the right memories of each prompt, and the likeliest of the wrong ones.

    Args:
        cases: the searches.
        on: whether it was trained before with all people but those of weeks of chats.
    """
    rng = random.Random(3)
    reader = _reader()
    for case in cases:
        share, count = _SHARES[case.kind]
        if on and not case.person.startswith("weeks/"):
            share *= _SHARE_ON
        asks = case.kind in ("question", "plan")
        if case.fill < 0 or (case.fill and not asks):
            continue
        if rng.random() > (share * _OF_FILLED if case.fill else share):
            continue
        likely = estimated(reader, case).likely
        wrong = [at for at in np.argsort(-likely).tolist() if case.right[at] == 0]
        count -= case.fill > 0
        # One of them is a little further away.
        chosen = wrong[: count - 1] + rng.sample(
            wrong[count - 1 : count + 7], min(1, len(wrong[count - 1 :]))
        )
        right = np.flatnonzero(case.right == 1).tolist()
        if chosen or right:
            yield Group(
                case.text,
                case.kind,
                [case.texts[at] for at in (*right, *chosen)],
                [1.0] * len(right) + [0.0] * len(chosen),
            )


def estimated(reader: RelevanceReader, case: Case) -> Relevances:
    """Return the relevance of the candidates of a case before any is read together with the prompt."""
    direction, scale = reader.bearing(case.query)
    read = case.read._replace(bearing=(case.rows @ direction * scale).astype(np.float64))
    return reader.estimate(read, case.prompt)


@cache
def _reader() -> RelevanceReader:
    reader = relevance_reader(MODEL)
    assert reader is not None
    return reader


def encoded(texts: Sequence[str], model: E5, *, query: bool) -> States:
    """Run the lower layers over prompts or memories."""
    return {
        text: model.lower_states(model.encode(text, query=query)[:READ_TOKENS]).astype(np.float16)
        for text in dict.fromkeys(texts)
    }


def train(found: Sequence[Group], prompts: States, memories: States, epochs: float, *, on: bool) -> bytes:
    """Train the layers; return the content of the file that `relayer.adapters.local_embedder.trained` reads.

    Args:
        found: what is learnt from.
        prompts: the states of all prompts.
        memories: the states of all memories.
        epochs: the number of passes.
        on: whether the layers begin as they are in that file, and not as those of the reader of relations.
    """
    import torch  # noqa: PLC0415 - weights are learnt without it
    from torch import nn  # noqa: PLC0415
    from torch.nn import functional  # noqa: PLC0415

    from bench.relation_reader import Net, head_of, written_head, written_layers  # noqa: PLC0415

    torch.manual_seed(0)
    rng = random.Random(0)
    model, weights = E5(), WeightsFile(model_file())
    upper = halves(weights.layers)[1]
    net = Net(
        TrainedLayers(trained_file("cross_encoder" if on else "relation_reader"), model.divisors), upper
    )
    if not on:
        net.head = head_of(weights.width, 1)
    own = [*net.head.parameters(), net.marks]
    rate = _RATE_ON if on else 1.0
    optimizer = torch.optim.AdamW(
        [
            {"params": net.layers.parameters(), "lr": rate * _RATE},
            {"params": own, "lr": rate * _HEAD_RATE},
        ],
        weight_decay=0.01,
    )
    steps = int(epochs * len(found) / _PROMPTS_OF_BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / _WARM_UP) * max(0.02, 1 - step / steps)
    )
    average = {name: value.detach().clone() for name, value in net.state_dict().items()}

    def loss_of(some: Sequence[Group]) -> Tensor:
        pairs = [(prompts[group.prompt], memories[text]) for group in some for text in group.texts]
        longest = max(len(prompt) + len(memory) for prompt, memory in pairs)
        states = np.zeros((len(pairs), longest, weights.width), np.float32)
        parts = np.full((len(pairs), longest), -1)
        for row, (prompt, memory) in enumerate(pairs):
            middle, end = len(prompt), len(prompt) + len(memory)
            states[row, :middle], states[row, middle:end] = prompt, memory
            parts[row, :middle], parts[row, middle:end] = 0, 1
        places = torch.tensor([(row, 0, len(prompt)) for row, (prompt, _) in enumerate(pairs)])
        scores = net(torch.from_numpy(states), torch.from_numpy(parts), places)[:, 0]
        right = torch.tensor([one for group in some for one in group.right])
        counts = torch.tensor([_COUNTS[group.kind] for group in some for _ in group.right])
        each = functional.binary_cross_entropy_with_logits(scores, right, reduction="none")
        loss: Tensor = (each * counts).sum() / counts.sum()
        orders = []
        for of_one, labels in zip(
            *(values.split([len(group.right) for group in some]) for values in (scores, right)), strict=True
        ):
            if 0 < labels.sum() < len(labels):
                wrong = torch.logsumexp(of_one[labels == 0], 0)
                orders.append(functional.softplus(wrong - of_one[labels == 1]).mean())
        return loss + _OF_ORDER * torch.stack(orders).mean() if orders else loss

    def length(group: Group) -> float:
        longest = max(len(memories[text]) for text in group.texts)
        return len(prompts[group.prompt]) + longest + 10 * rng.random()

    begun, lost = time.monotonic(), [0.0]
    for step in range(steps):
        at = step % (len(found) // _PROMPTS_OF_BATCH)
        if at == 0:
            # Prompts of about the same length are in one batch.
            order = sorted(found, key=length)
            batches = [
                order[start : start + _PROMPTS_OF_BATCH] for start in range(0, len(order), _PROMPTS_OF_BATCH)
            ]
            rng.shuffle(batches)
        loss = loss_of(batches[at])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for name, value in net.state_dict().items():
                average[name].lerp_(value, 1 - _AVERAGED)
        lost.append(float(loss.detach()))
        if step % 200 == 199:
            print(
                f"{step + 1} of {steps}: loss {np.mean(lost[-200:]):.3f}, {time.monotonic() - begun:.0f} s",
                flush=True,
            )
    state = {name: value.numpy() for name, value in average.items()}
    arrays = written_layers(state, upper, weights, model) | written_head(state) | {"marks": state["marks"]}
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


@dataclass(slots=True)
class Read:
    """A prompt of a person whom no layer has learnt from: its candidates, and what the cross-encoder says of those that are read."""

    case: Case
    before: Relevances
    at: NDArray[np.intp]
    scores: Numbers

    def features(self) -> Numbers:
        """Return the features of the candidates that were read."""
        return together_features(
            self.before.likely[self.at], self.scores, self.before.admitted, self.case.prompt
        )

    def gate_features(self, memory: Logistic) -> Numbers:
        """Return the features of the prompt, given the weights of memories."""
        likely = 1 / (1 + np.exp(-memory.logits(self.features())))
        return together_gate_features(
            likely, float(self.scores.max()), self.before.admitted, self.case.prompt
        )


class _Own(Prompts):
    """The vectors and admissions of prompts by the package's layers."""

    def __init__(self, model: E5) -> None:
        super().__init__()
        self._model, self._reader = model, PromptReader(model)

    def __missing__(self, key: tuple[int, str]) -> tuple[NDArray[np.float32], float]:
        row = self._reader.row(self._model.encode(key[1], query=True))
        self[key] = row[384:768], float(row[768])
        return self[key]


def search(parts: Iterable[Person], *, of_others: bool = True) -> list[Case]:
    """Search for the prompts of people as the relayer does, but for what reads them together."""
    return asyncio.run(searched(list(parts), 0, 1, _Own(E5()), of_others=of_others))


def clean_people() -> Iterator[Person]:
    """Yield people whom no layer has learnt from; they also ask by their key words alone, every second time as a question."""
    for part in ("second", "fourth", "dev"):
        searched_for = {
            space.name: [one for one in space.asked if one.kind == "keywords"]
            for space in people(f"{part}/people")
        }
        for person in of_people(part):
            if part != "fourth" or is_left_out(person):
                words = enumerate(searched_for[person.name])
                asked: list[Asked] = [
                    ("question", one.text + "?" * (number % 2), list(one.right), []) for number, one in words
                ]
                yield replace(person, asked=[*person.asked, *asked])
    yield from of_weeks(left_out=True)


def _author(case: Case) -> str:
    part, *_, name = case.person.split("/")
    return f"{part}/{name[:1] if part == 'weeks' else name[:2]}"


class First(NamedTuple):
    """The weights by which memories, and the prompt, count before any memory is read."""

    memory: Logistic
    prompt: Logistic

    def estimate(self, case: Case, read: CandidateScores) -> Relevances:
        """Return the relevance of the candidates of a case."""
        (likely,), rows = estimates([case], [read], self.memory)
        return Relevances(likely, float(self.prompt.logits(rows)[0]))


def _bearing(case: Case) -> CandidateScores:
    direction, scale = _reader().bearing(case.query)
    count = len(case.read.ranked)
    return case.read._replace(bearing=(case.rows[:count] @ direction * scale).astype(np.float64))


def learn_first(cases: Sequence[Case], reads: Sequence[CandidateScores]) -> First:
    """Learn the weights before any memory is read together with the prompt."""
    rows = np.concatenate([features(read, case.prompt) for case, read in zip(cases, reads, strict=True)])
    labels = np.concatenate([case.right for case in cases])
    counts = np.concatenate(
        [np.full(len(case.right), _OF_MEMORY[case.kind] * share(case)) * counted(case) for case in cases]
    ) * (labels >= 0)
    memory = learn_logistic(rows[counts > 0], labels[counts > 0], counts[counts > 0], 0.3)
    _, of_prompts = estimates(cases, reads, memory)
    return First(memory, _admission(of_prompts, cases, 0.03, _FIRST_BAR))


def _admission(rows: Numbers, cases: Sequence[Case], strength: float, bar: float) -> Logistic:
    wanted = np.array([int(case.kind in ("question", "plan")) for case in cases])
    counts = np.array([_OF_PROMPT[case.kind] * share(case) for case in cases])
    weights = learn_logistic(rows, wanted, counts, strength).weights
    weights[-1] -= bar
    return Logistic(weights)


def read_clean(cases: Sequence[Case]) -> tuple[First, list[Read]]:
    """Learn the first weights, estimate each case by those of other authors, and read its best candidates together with the prompt."""
    reads = [_bearing(case) for case in cases]
    authors = sorted({_author(case) for case in cases})
    fold = np.array([authors.index(_author(case)) % _FOLDS for case in cases])
    cross, found = CrossEncoder(E5()), list[Read]()
    for one in range(_FOLDS):
        others = np.flatnonzero(fold != one).tolist()
        first = learn_first([cases[at] for at in others], [reads[at] for at in others])
        for at in np.flatnonzero(fold == one).tolist():
            before = first.estimate(cases[at], reads[at])
            best = to_read(before)
            scores = cross.scores(cases[at].text, [cases[at].texts[number] for number in best])
            found.append(Read(cases[at], before, best, scores.astype(np.float64)))
        print(f"read {len(found)} of {len(cases)} prompts", flush=True)
    return learn_first(cases, reads), found


def weighed(found: Sequence[Read]) -> tuple[Logistic, Logistic]:
    """Learn the weights of memories and of prompts, from those that were read together."""
    found = [one for one in found if len(one.at)]
    labels = np.concatenate([one.case.right[one.at] for one in found])
    counts = np.concatenate(
        [np.full(len(one.at), _OF_MEMORY[one.case.kind] * share(one.case)) for one in found]
    ) * (labels >= 0)
    rows = np.concatenate([one.features() for one in found])
    memory = learn_logistic(rows[counts > 0], labels[counts > 0], counts[counts > 0], 0.3)
    of_prompts = np.stack([one.gate_features(memory) for one in found])
    return memory, _admission(of_prompts, [one.case for one in found], 0.1, _BAR)


def print_choices(found: Sequence[Read]) -> None:
    """Print and draw what the prompts of each author's people get, by weights that were learnt from those of the other authors."""
    by_author = defaultdict(list)
    for one in found:
        by_author[_author(one.case)].append(one)
    chosen: dict[bool, list[tuple[Case, Relevances]]] = {True: [], False: []}
    for author, own in by_author.items():
        memory, prompt = weighed([one for name, each in by_author.items() if name != author for one in each])
        for one in own:
            likely, admitted = np.zeros(len(one.case.right)), np.array(-np.inf)
            if len(one.at):
                likely[one.at] = 1 / (1 + np.exp(-memory.logits(one.features())))
                admitted = prompt.logits(one.gate_features(memory))
            # What the prompt itself left behind is neither right nor wrong, and is not told.
            told = Relevances(np.where(one.case.right < 0, 0.0, likely), float(admitted))
            chosen[one.case.fill == AMONG_FEW].append((one.case, told))
    points: dict[float, dict[str, float]] = {}
    for few, some in chosen.items():
        cases, readings = zip(*some, strict=True)
        points = {bar: chosen_for(cases, readings, bar - _BAR) for bar in _BARS}
        for bar, means in points.items():
            each = ", ".join(f"{name} {mean:.1f}" for name, mean in means.items())
            print(f"{'few' if few else 'all'} memories, bar {bar:+.1f}: {each}")
    named = {f"{bar:+.1f}": means for bar, means in points.items()}
    PICTURE.with_suffix(".json").write_text(json.dumps(named, indent=1) + "\n", "utf-8")
    print(plot_choices(points, PICTURE))


def plot_choices(points: Mapping[float, Mapping[str, float]], path: Path) -> Path:
    """Draw what is told against what is told in vain, and against the lines of a question, at each bar."""
    told = [means["told"] for means in points.values()]
    used = min(points, key=lambda bar: abs(bar - _BAR))
    with drawing(path, width=8.5, height=3.6, panels=2) as (vain, lines):
        for name in ("unanswerable", "untouched", "unrelated"):
            vain.plot([means[name] for means in points.values()], told, marker=".", label=name)
        lines.plot([means["lines"] for means in points.values()], told, marker=".")
        vain.set_xlabel("other prompts that get a line, %")
        lines.set_xlabel("lines that a question gets")
        vain.legend(loc="lower right", fontsize=8)
        for axes in (vain, lines):
            axes.axhline(points[used]["told"], color="grey", linewidth=0.6, linestyle="--")
            axes.set_ylabel("questions whose memory is told, %")
            axes.grid(visible=True, linewidth=0.3)
    return path


def main(
    cases: Annotated[
        Path | None, typer.Option(help="Train; where the searches are kept, or will be.")
    ] = None,
    *,
    on: Annotated[bool, typer.Option("--on", help="Train the package's file further.")] = False,
    epochs: Annotated[float, typer.Option(help="Passes over the prompts.")] = 0.66,
    weigh: Annotated[bool, typer.Option("--weigh", help="Learn how much each number counts.")] = False,
) -> None:
    """Train the cross-encoder, or learn the weights of relevance."""
    if cases is not None:
        if not cases.exists():
            learnt_from = (person for person in everyone() if not person.name.startswith("dev/"))
            cases.write_bytes(pickle.dumps(search(learnt_from)))
        found = list(groups(pickle.loads(cases.read_bytes()), on=on))
        print(f"{len(found)} prompts with {sum(len(group.texts) for group in found)} memories", flush=True)
        model = E5()
        prompts = encoded([group.prompt for group in found], model, query=True)
        memories = encoded([text for group in found for text in group.texts], model, query=False)
        content = train(found, prompts, memories, epochs, on=on)
        trained_file("cross_encoder").write_bytes(content)
        print(f"{hashlib.sha256(content).hexdigest()}, {len(content) / 1e6:.1f} MB")
    if weigh:
        clean = [
            case
            for case in search(clean_people(), of_others=False)
            if case.kind in _OF_MEMORY and len(case.read.ranked)
        ]
        first, read = read_clean(clean)
        print_choices(read)
        memory, prompt = weighed(read)
        learnt = {
            "memory": first.memory,
            "prompt": first.prompt,
            "memory-together": memory,
            "prompt-together": prompt,
        }
        with np.load(WEIGHTS) as stored:
            arrays: dict[str, Any] = dict(stored)
        arrays |= {f"{MODEL}_{name}": one.weights.astype(np.float32) for name, one in learnt.items()}
        np.savez_compressed(WEIGHTS, **arrays)
        print(f"SHA-256 {hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    # By its own name, under which the cases were kept.
    typer.run(importlib.import_module("bench.cross_encoder").main)
