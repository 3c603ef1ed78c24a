"""Train the cross-encoder, which reads a prompt together with a memory, and learn how much its scores count.

    python -m bench.cross_encoder --cases FILE         # train, and write ``relayer/adapters/models/cross_encoder.npz``
    python -m bench.cross_encoder --cases FILE --on    # train it further, above all with the people of ``bench/sets/weeks``
    python -m bench.cross_encoder --weigh              # learn and write its weights in ``relayer/search/data/relevance.npz``

It learns from the candidates of searches: the memories that are right for a prompt, and the likeliest wrong ones beside them. It
starts from the reader of relations, which reads two texts together, too. The weights of its scores are learnt from people whom
neither the layers nor the weights before it were learnt from (``second``, and two authors of ``fourth``): what it says of people
that it was trained with would count for too much. Training needs torch and about half an hour of two processors; both need
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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bench.relevance import (
    MODEL,
    WEIGHTS,
    Case,
    Kind,
    Numbers,
    Person,
    Prompts,
    chosen_for,
    everyone,
    is_left_out,
    learn_logistic,
    of_people,
    searched,
)
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
    Logistic,
    RelevanceReader,
    Relevances,
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
# Weights of prompts of the second set for the probability of memories, and for the admission.
_OF_MEMORY = {"question": 1.0, "plan": 3.0, "unanswerable": 0.7, "untouched": 0.8, "unrelated": 0.5}
_OF_PROMPT = {"question": 1.0, "plan": 1.3, "unanswerable": 0.15, "untouched": 1.5, "unrelated": 1.5}
_BAR = -0.7
# The bars that are printed and drawn, from that one on.
_BARS = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
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
    """A prompt of the second set: its candidates, and what the cross-encoder says of those that are read."""

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


def search(parts: Iterable[Person]) -> list[Case]:
    """Search for the prompts of people as the relayer does, but for what reads them together."""
    return asyncio.run(searched(list(parts), 0, 1, _Own(E5())))


def read_second() -> list[Read]:
    """Search for the prompts of the people of no training, and read them together with the best candidates."""
    cross = CrossEncoder(E5())
    found = []
    for case in search([*of_people("second"), *filter(is_left_out, of_people("fourth"))]):
        if case.fill == 0 and case.kind in _OF_MEMORY:
            before = estimated(_reader(), case)
            at = to_read(before)
            scores = cross.scores(case.text, [case.texts[one] for one in at]).astype(np.float64)
            found.append(Read(case, before, at, scores))
    return found


def weighed(found: Sequence[Read]) -> tuple[Logistic, Logistic]:
    """Learn the weights of memories and of prompts, from those that were read together."""
    found = [one for one in found if len(one.at)]
    labels = np.concatenate([one.case.right[one.at] for one in found])
    counts = np.concatenate([np.full(len(one.at), _OF_MEMORY[one.case.kind]) for one in found]) * (
        labels >= 0
    )
    rows = np.concatenate([one.features() for one in found])
    memory = learn_logistic(rows[counts > 0], labels[counts > 0], counts[counts > 0], 0.3)
    prompt = learn_logistic(
        np.stack([one.gate_features(memory) for one in found]),
        np.array([int(one.case.kind in ("question", "plan")) for one in found]),
        np.array([_OF_PROMPT[one.case.kind] for one in found]),
        0.1,
    ).weights
    prompt[-1] -= _BAR
    return memory, Logistic(prompt)


def print_choices(found: Sequence[Read]) -> None:
    """Print and draw what the prompts of each author's people get, by weights that were learnt from those of the other authors."""
    by_author = defaultdict(list)
    for one in found:
        by_author[Path(one.case.person).name[:2]].append(one)
    cases, readings = [], []
    for author, own in by_author.items():
        memory, prompt = weighed([one for name, each in by_author.items() if name != author for one in each])
        for one in own:
            likely, admitted = np.zeros(len(one.case.right)), np.array(-np.inf)
            if len(one.at):
                likely[one.at] = 1 / (1 + np.exp(-memory.logits(one.features())))
                admitted = prompt.logits(one.gate_features(memory))
            cases.append(one.case)
            readings.append(Relevances(likely, float(admitted)))
    points = {bar: chosen_for(cases, readings, bar) for bar in _BARS}
    for bar, means in points.items():
        print(f"bar {_BAR + bar:+.1f}:", ", ".join(f"{name} {mean:.1f}" for name, mean in means.items()))
    named = {f"{_BAR + bar:+.1f}": means for bar, means in points.items()}
    PICTURE.with_suffix(".json").write_text(json.dumps(named, indent=1) + "\n", "utf-8")
    print(plot_choices(points, PICTURE))


def plot_choices(points: Mapping[float, Mapping[str, float]], path: Path) -> Path:
    """Draw what is told against what is told in vain, and against the lines of a question, at each bar."""
    told = [means["told"] for means in points.values()]
    with drawing(path, width=8.5, height=3.6, panels=2) as (vain, lines):
        for name in ("unanswerable", "untouched", "unrelated"):
            vain.plot([means[name] for means in points.values()], told, marker=".", label=name)
        lines.plot([means["lines"] for means in points.values()], told, marker=".")
        vain.set_xlabel("other prompts that get a line, %")
        lines.set_xlabel("lines that a question gets")
        vain.legend(loc="lower right", fontsize=8)
        for axes in (vain, lines):
            axes.axhline(points[0.0]["told"], color="grey", linewidth=0.6, linestyle="--")
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
    weigh: Annotated[bool, typer.Option("--weigh", help="Learn how much the scores count.")] = False,
) -> None:
    """Train the cross-encoder, or learn the weights of its scores."""
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
        read = read_second()
        print_choices(read)
        memory, prompt = weighed(read)
        with np.load(WEIGHTS) as stored:
            arrays: dict[str, Any] = dict(stored)
        arrays |= {f"{MODEL}_memory-together": memory.weights.astype(np.float32)}
        arrays |= {f"{MODEL}_prompt-together": prompt.weights.astype(np.float32)}
        np.savez_compressed(WEIGHTS, **arrays)
        print(f"SHA-256 {hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    # By its own name, under which the cases were kept.
    typer.run(importlib.import_module("bench.cross_encoder").main)
