"""Train the last layers of the embedding model for messages: the weights of `relayer.adapters.local_embedder.trained.MessageLayers`.

    python -m bench.message_layers --states FILE --without fr,ko,pl  # train and report, keep the hidden states in FILE
    python -m bench.message_layers --states FILE --output TRAINED    # learn from everything
    python -m bench.message_layers --states FILE --epochs 0 --start TRAINED --mean-with BEFORE --write  # and write the layers

A message or a sentence of one is read once, and linear forms of its vector say whether it is worth storing, by the classes of
users and of assistants, which kind of statement it is, and whether it must always be known. The texts are those of `bench.message_reader.learnt_from`, of which
alike ones are a sample, and ``bench/sets/unreal``, ``bench/sets/said``, ``bench/sets/brief`` and ``bench/sets/standing``. The file in
the package is one epoch further (``--start`` with the packaged file, ``--epochs 1``) than a mean with the one before, which had not
learnt the last lines of ``said``, ``brief`` and the first ``_hurried`` of ``standing``: layers that learn all of it at once lose quiet
statements of what is so. The epoch added ``brief/*_twins`` and 896 lines of ``_hurried``. Needs torch and scikit-learn; a pass takes
about ten minutes of one processor. The same sets and model give nearly the same file, which depends on the version of torch.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple
from zlib import crc32

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bench import message_reader, standing
from bench.message_reader import Case
from bench.relation_reader import Layer, written_layers
from relayer.adapters.local_embedder.e5 import E5, WeightsFile, centre_file, last_layers, model_file
from relayer.adapters.local_embedder.trained import LENGTH, READ_TOKENS, TrainedLayers, trained_file
from relayer.lib.n_grams import ESSENTIALS, KINDS, MESSAGE_CLASSES, beginning_and_end

_BATCH = 48
_RATE, _HEAD_RATE = 8e-5, 2e-3
_WARM_UP = 50
_SMOOTHED = 0.05
_OF_KIND = 0.5
# Short news are few, and so are short essential statements.
_OF_BRIEF = 3.0
# The number of texts for which the forms of a mean are fitted.
_FOR_THE_MEAN = 18_000
# Of each language and class, so many texts at most are learnt from; the rest are alike.
_MOST = {"keep": 340, "one_off": 100, "question": 220, "none": 300}
# What was written for the purpose is learnt from whole. What is said of a class that there is little of counts more.
_COUNTS = {"hedge": 2.0, "courtesy": 1.0, "unreal": 1.3, "result": 1.5}

HEADS: dict[str, Sequence[str]] = {**MESSAGE_CLASSES, "kind": KINDS, "essential": ESSENTIALS}
"""The linear forms: their classes by their names."""

States = dict[str, NDArray[np.float16]]
"""The hidden states of texts before the last layers."""


class Example(NamedTuple):
    """A text to learn from.

    Attributes:
        head: the name of the linear form.
        wanted: the number of the class.
        counted: the weight.
        text: the text.
    """

    head: str
    wanted: int
    counted: float
    text: str


class Net(nn.Module):
    """The last layers, and the linear forms."""

    def __init__(
        self, weights: WeightsFile, centre: NDArray[np.float32], trained: TrainedLayers | None = None
    ) -> None:
        super().__init__()
        numbers = last_layers(weights.layers)
        self.layers = nn.ModuleList(Layer(trained or weights, number) for number in numbers)
        self.centre = torch.from_numpy(centre)
        self.head = nn.Linear(weights.width, sum(map(len, HEADS.values())))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if trained is not None:
            # A file from before may have fewer forms.
            rows = torch.from_numpy(trained.floats("head.w").reshape(-1, weights.width)) / LENGTH
            self.head.weight.data[: len(rows)] = rows
            self.head.bias.data[: len(rows)] = torch.from_numpy(trained.floats("head.b"))

    def forward(self, states: Sequence[NDArray[np.float16]]) -> Tensor:
        """Return the logits of texts, of all linear forms one after the other."""
        logits: Tensor = self.head(self.vectors(states) * LENGTH)
        return logits

    def vectors(self, states: Sequence[NDArray[np.float16]]) -> Tensor:
        """Return the vectors of texts, of length 1."""
        longest = max(map(len, states))
        rows = torch.zeros(len(states), longest, states[0].shape[1])
        present = torch.zeros(len(states), longest, dtype=torch.bool)
        for at, one in enumerate(states):
            rows[at, : len(one)] = torch.from_numpy(one.astype(np.float32))
            present[at, : len(one)] = True
        for layer in self.layers:
            rows = layer(rows, present[:, None, None])
        mean = functional.normalize((rows * present[..., None]).sum(1), dim=-1)
        return functional.normalize(mean - self.centre, dim=-1)


def columns(head: str) -> slice:
    """Return the columns of a linear form in the logits."""
    start = sum(
        len(classes) for name, classes in HEADS.items() if list(HEADS).index(name) < list(HEADS).index(head)
    )
    return slice(start, start + len(HEADS[head]))


def sampled(cases: Iterable[Case], written: Iterable[Case]) -> list[Case]:
    """Return the cases that were written for the purpose, and of the others a sample by language and class."""
    found = dict.fromkeys(written)
    taken: dict[tuple[str, str], int] = defaultdict(int)
    for case in sorted(set(cases) - found.keys(), key=lambda case: crc32(" ".join(case).encode())):
        taken[case[:2]] += 1
        if taken[case[:2]] <= _MOST.get(case[1], 10_000):
            found[case] = None
    return list(found)


def examples(without: frozenset[str]) -> list[Example]:
    """Return what is learnt from, without the languages of ``bench/sets/unreal`` that are left out."""
    unreal = [case for case in message_reader.unreal() if case[0] not in without]
    brief = message_reader.brief()
    essential = [(lang, "keep", text) for lang, label, text in standing.hurried() if label != "none"]
    more = [*unreal, *message_reader.said(), *brief, *essential, *message_reader.of_weeks()]
    written = [*more, *message_reader.labelled(), *_hurried(unreal)]
    few = {text for *_, text in (*brief, *essential)}
    found = []
    for _, label, text in sampled(message_reader.learnt_from(more), written):
        counted = _COUNTS.get(label, 1.0) * (_OF_BRIEF if text in few else 1.0)
        for head, classes in MESSAGE_CLASSES.items():
            if label in classes:
                found.append(Example(head, classes.index(label), counted, text))
    for _, kind, text in message_reader.of_kinds():
        found.append(Example("kind", KINDS.index(kind), _OF_KIND, text))
    hurried = set(standing.hurried())
    for case in sampled(standing.with_prompts(standing.labelled()), standing.labelled()):
        counted = _OF_BRIEF if case in hurried else 1.0
        found.append(Example("essential", ESSENTIALS.index(case[1]), counted, case[2]))
    return found


def _hurried(cases: Sequence[Case]) -> list[Case]:
    """Return a third of the cases as they are typed in a hurry."""
    some = [case for case in cases if not crc32(case[2].encode()) % 3]
    return [(lang, label, text.rstrip(".!?\uff1f\u061f。\u00bf ").lower()) for lang, label, text in some]


def train(cases: Sequence[Example], states: States, net: Net, epochs: int) -> Net:
    """Train the layers and the linear forms."""
    random = Random(0)
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(
        [
            {"params": net.layers.parameters(), "lr": _RATE},
            {"params": net.head.parameters(), "lr": _HEAD_RATE},
        ],
        weight_decay=0.01,
    )
    steps = epochs * len(cases) // _BATCH
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / _WARM_UP) * max(0.02, 1 - step / steps)
    )
    begun = time.monotonic()
    for epoch in range(epochs):
        # Texts of about the same length are in one batch.
        some = sorted(cases, key=lambda case: len(states[case.text]) + 6 * random.random())
        batches = [some[at : at + _BATCH] for at in range(0, len(some), _BATCH)]
        random.shuffle(batches)
        lost = 0.0
        for number, batch in enumerate(batches):
            logits = net([states[case.text] for case in batch])
            loss = loss_of(logits, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            lost += float(loss.detach())
            if number % 100 == 99:
                print(
                    f"{epoch}.{number}: loss {lost / (number + 1):.3f}, {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
    return net.eval()


def loss_of(logits: Tensor, batch: Sequence[Example]) -> Tensor:
    """Return the loss of a batch."""
    parts, weights = logits.sum() * 0, 0.0
    for head in HEADS:
        at = [number for number, case in enumerate(batch) if case.head == head]
        if not at:
            continue
        wanted = torch.tensor([batch[number].wanted for number in at])
        counted = torch.tensor([batch[number].counted for number in at])
        each = functional.cross_entropy(
            logits[at][:, columns(head)], wanted, reduction="none", label_smoothing=_SMOOTHED
        )
        parts, weights = parts + (each * counted).sum(), weights + float(counted.sum())
    return parts / weights


def read(net: Net, texts: Sequence[str], states: States) -> NDArray[np.float32]:
    """Return the logits of texts."""
    parts = (texts[at : at + _BATCH] for at in range(0, len(texts), _BATCH))
    with torch.no_grad():
        return np.concatenate([net([states[text] for text in part]).numpy() for part in parts])


def mean_of(before: Net, after: Net, states: States, texts: Sequence[str]) -> Net:
    """Return a net with the mean of the weights of two, whose linear forms give the mean of their logits for these texts.

    The forms that only ``after`` has, those of essential statements, give the logits of ``after``.
    """
    logits = [read(net, texts, states) for net in (before, after)]
    wanted = np.mean(logits, axis=0)
    wanted[:, columns("essential")] = logits[1][:, columns("essential")]
    earlier = before.state_dict()
    after.load_state_dict({name: (value + earlier[name]) / 2 for name, value in after.state_dict().items()})
    parts = (texts[at : at + _BATCH] for at in range(0, len(texts), _BATCH))
    with torch.no_grad():
        vectors = np.concatenate([after.vectors([states[text] for text in part]).numpy() for part in parts])
    rows = np.hstack([vectors * LENGTH, np.ones((len(vectors), 1))]).astype(np.float64)
    forms = np.linalg.solve(rows.T @ rows + np.eye(rows.shape[1]), rows.T @ wanted).astype(np.float32)
    after.head.weight.data = torch.from_numpy(forms[:-1].T.copy())
    after.head.bias.data = torch.from_numpy(forms[-1])
    return after


def encoded(texts: Iterable[str], model: E5, known: States) -> States:
    """Run all layers but the last over texts that are not known yet."""
    for text in texts:
        if text not in known:
            ids = model.encode(beginning_and_end(text), query=False)[:READ_TOKENS]
            known[text] = model.shared_states(ids).astype(np.float16)
    return known


def held_out(without: frozenset[str]) -> dict[str, list[Case]]:
    """Return what the layers are judged by: cases of users that are not learnt from."""
    paths = sorted((message_reader.SETS / "precise" / "dev" / "people").glob("*.json"))
    people = [json.loads(path.read_text("utf-8")) for path in paths]
    fictions = [(one["language"], "unreal", item["said"]) for one in people for item in one["fictions"]]
    told = [(one["language"], "keep", text) for one in people for text in one["memories"]]
    return {
        "left out": [case for case in message_reader.unreal() if case[0] in without],
        "development": fictions + told,
        "weeks": message_reader.of_weeks(left_out=True),
        "short news": message_reader.brief(left_out=True),
        **{half: message_reader.of_the_day(half) for half in ("seen", "second")},
    }


def report(net: Net, cases: Sequence[Case], states: States) -> str:
    """Return how many of each class are taken for each class."""
    classes = MESSAGE_CLASSES["user"]
    cases = [case for case in cases if case[1] in classes]
    if not cases:
        return ""
    logits = read(net, [text for *_, text in cases], states)[:, columns("user")]
    worth = logits[:, 0] - np.logaddexp.reduce(logits[:, 1:], axis=1)
    keep = np.array([label == "keep" for _, label, _ in cases])
    lines = []
    for label in dict.fromkeys(label for _, label, _ in cases):
        own = [logits[at].argmax() for at, case in enumerate(cases) if case[1] == label]
        lines.append(
            f"  {label}: {dict(zip(classes, np.bincount(own, minlength=len(classes)).tolist(), strict=True))}"
        )
    lines += [
        f"  from {bar}: kept {(worth[keep] > bar).mean():.3f}, others {(worth[~keep] > bar).mean():.3f}"
        for bar in (-3, -2, -1, 0, 1)
    ]
    return "\n".join(lines)


def report_of_essentials(net: Net, states: States) -> str:
    """Return how many of the essential statements that are not learnt from are found, and of what is taken for each, how many are."""
    cases = standing.left_out()
    logits = read(net, [text for *_, text in cases], states)[:, columns("essential")]
    rest = [np.logaddexp.reduce(np.delete(logits, place, axis=1), axis=1) for place in range(len(ESSENTIALS))]
    lines = []
    for place, kind in list(enumerate(ESSENTIALS))[1:]:
        taken = (logits[:, 1:].argmax(axis=1) + 1 == place) & (logits[:, place] > rest[place])
        said = np.array([label == kind for _, label, _ in cases])
        lines.append(
            f"  {kind}: found {(taken & said).sum()} of {said.sum()}, {(taken & ~said).sum()} others"
        )
    return "\n".join(lines)


def written_file(net: Net, weights: WeightsFile, model: E5) -> bytes:
    """Return the content of the file that `relayer.adapters.local_embedder.trained` reads."""
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    arrays = written_layers(state, last_layers(weights.layers), weights, model) | {
        "head.w": state["head.weight"] * np.float32(LENGTH),
        "head.b": state["head.bias"],
    }
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def main(
    states: Annotated[Path, typer.Option(help="Where the hidden states are kept.")],
    epochs: Annotated[int, typer.Option(help="Passes over the texts.")] = 2,
    without: Annotated[
        str, typer.Option(help="Languages of bench/sets/unreal that are left out, with commas.")
    ] = "",
    *,
    start: Annotated[Path | None, typer.Option(help="Go on from a file that was trained before.")] = None,
    mean_with: Annotated[
        Path | None, typer.Option(help="A file whose mean with what was trained is taken.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the layers here.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the layers of the package.")] = False,
) -> None:
    """Train the layers, and report what they say about texts that they did not learn from."""
    torch.set_num_threads(1)
    left_out = frozenset(filter(None, without.split(",")))
    learnt, judged, model = examples(left_out), held_out(left_out), E5()
    known: States = pickle.loads(states.read_bytes()) if states.exists() else {}
    count = len(known)
    texts = [*(case.text for case in learnt), *(text for cases in judged.values() for *_, text in cases)]
    texts += [text for *_, text in standing.left_out()]
    encoded(texts, model, known)
    if len(known) > count:
        states.write_bytes(pickle.dumps(known))
    print(f"{len(learnt)} texts, {len(known)} known", flush=True)
    centre = np.load(centre_file()).astype(np.float32)[0]
    started, before = (
        Net(WeightsFile(model_file()), centre, one and TrainedLayers(one, model.divisors)).eval()
        for one in (start, mean_with)
    )
    net = train(learnt, known, started.train(), epochs) if epochs else started
    if mean_with is not None:
        few = [case.text for case in learnt if case.counted >= _OF_BRIEF]
        others = Random(0).sample(sorted({case.text for case in learnt}), _FOR_THE_MEAN)
        net = mean_of(before, net, known, sorted({*few, *others}, key=lambda text: len(known[text])))
    for name, cases in judged.items():
        print(f"{name}\n{report(net, cases, known)}", flush=True)
    print(f"essential\n{report_of_essentials(net, known)}", flush=True)
    content = written_file(net, WeightsFile(model_file()), model)
    path = trained_file("message_layers") if write else output
    if path is not None:
        path.write_bytes(content)
        print(f"{hashlib.sha256(content).hexdigest()}, {len(content) / 1e6:.1f} MB")


if __name__ == "__main__":
    typer.run(main)
