"""Train the last layers of the embedding model for prompts: the weights of `relayer.adapters.local_embedder.trained.PromptReader`.

    python -m bench.relevance --cases FILE        # search for all prompts once
    python -m bench.prompt_layers --cases FILE    # train, report, write the layers, and the vectors of the prompts beside FILE
    python -m bench.prompt_layers --cases FILE --fold=-1 --on    # train the package's layers further

The vectors of memories stay. A prompt's vector is drawn to the memories that answer it or bear on it, from the other candidates of
its search and those of other prompts (a softmax), and so that its cosines say how likely each is right (a logistic regression
of one number). A linear form of the same vector learns whether any memory is right. `folds_of` divides the people: for the weights
that are learnt afterwards, each prompt has vectors of layers that were trained without it. Needs torch; a fold takes about three
minutes of one processor. The same sets and model give nearly the same file, which depends on the version of torch.
The package's file was trained by three passes over the people of 0034, and by three more with ``--on`` over the people of
``bench/sets/weeks`` and a third of the others, the mean of the weights before and after, with the admissions of before; then by
two more from those that had not been averaged, with short prompts of weeks, and again the mean with the file before. After each
``python -m bench.cross_encoder --weigh`` learns the weights again.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bench.relation_reader import Layer, written_layers
from bench.relevance import FOLDS, GENERAL, Case, Prompts, fold_of, folds_of
from relayer.adapters.local_embedder.e5 import E5, WeightsFile, centre_file, last_layers, model_file
from relayer.adapters.local_embedder.trained import TrainedLayers, trained_file

_BATCH = 48
_RATE, _HEAD_RATE = 8e-5, 1e-2
# With ``--on``, the part of the rate of the layers.
_RATE_ON = 0.75
_WARM_UP = 50
# Parts of the loss, beside the softmax: each memory's probability, the admission, and the distance from the query's vector.
_OF_PROBABILITY, _OF_ADMISSION, _OF_DRIFT = 3.0, 0.5, 0.3
# Weights of cases for the probability of memories, and for the admission. Questions of others are often asked in half the epochs.
_MEMORY = {"question": 1.0, "plan": 1.5, "unanswerable": 0.5, "untouched": 0.8, "unrelated": 0.6}
_ADMISSION = {"question": 1.0, "plan": 1.0, "unanswerable": 0.0, "untouched": 1.5, "unrelated": 1.0}
_READ_TOKENS = 64
# Of a prompt of fewer characters, how much its admission counts; and from which admission on one is far from the bar.
_SHORT, _SHORT_COUNTS, _NEAR_BAR = 25, 3.0, 4.0
# The length that the vector has before the linear form.
_LENGTH = 10.0

States = dict[str, NDArray[np.float16]]
"""The hidden states of prompts before the last layers."""


class Net(nn.Module):
    """The last layers, and the linear form of the admission.

    Args:
        weights: of the embedding model.
        centre: the mean of the vectors of prompts.
        trained: the layers to begin with; None for those of the embedding model.
    """

    def __init__(
        self, weights: WeightsFile, centre: NDArray[np.float32], trained: TrainedLayers | None = None
    ) -> None:
        super().__init__()
        begun = weights if trained is None else trained
        self.layers = nn.ModuleList(Layer(begun, number) for number in last_layers(weights.layers))
        self.centre = torch.from_numpy(centre)
        self.scale = nn.Parameter(torch.tensor(2.7))
        self.slope, self.bias = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(-4.0))
        self.admission = nn.Linear(weights.width, 1)
        nn.init.zeros_(self.admission.weight)
        nn.init.zeros_(self.admission.bias)
        if trained is not None:
            self.admission.weight.data = torch.from_numpy(trained.floats("admission.w")[None] / _LENGTH)
            self.admission.bias.data = torch.from_numpy(np.atleast_1d(trained.floats("admission.b")))

    def forward(self, states: Sequence[NDArray[np.float16]]) -> tuple[Tensor, Tensor]:
        """Return the vectors and the admissions of prompts."""
        longest = max(map(len, states))
        rows = torch.zeros(len(states), longest, states[0].shape[1])
        present = torch.zeros(len(states), longest, dtype=torch.bool)
        for at, one in enumerate(states):
            rows[at, : len(one)] = torch.from_numpy(one.astype(np.float32))
            present[at, : len(one)] = True
        for layer in self.layers:
            rows = layer(rows, present[:, None, None])
        mean = functional.normalize((rows * present[..., None]).sum(1), dim=-1)
        vectors = functional.normalize(mean - self.centre, dim=-1)
        return vectors, self.admission(vectors * _LENGTH)[:, 0]


class Batch(NamedTuple):
    """The candidates of some cases, one after the other.

    Attributes:
        rows: their vectors.
        right: 1, 0 or -1, see `bench.relevance.Case`.
        own: the number of the case of each.
        counted: the weight of each.
        wanted: whether memories are right for a case.
    """

    rows: Tensor
    right: Tensor
    own: Tensor
    counted: Tensor
    wanted: Tensor

    @classmethod
    def joined(cls, cases: Sequence[Case]) -> Batch:
        """Join the candidates of cases."""
        wanted = [case.kind in ("question", "plan") for case in cases]
        # Of a prompt without a right memory only the best candidates count, since the others are all alike.
        counted = [
            _MEMORY[case.kind]
            * ((case.right >= 0) & (np.arange(len(case.right)) < (len(case.right) if asks else 8)))
            for case, asks in zip(cases, wanted, strict=True)
        ]
        return cls(
            torch.from_numpy(np.concatenate([case.rows for case in cases]).astype(np.float32)),
            torch.from_numpy(np.concatenate([case.right for case in cases])),
            torch.from_numpy(np.repeat(np.arange(len(cases)), [len(case.right) for case in cases])),
            torch.from_numpy(np.concatenate(counted).astype(np.float32)),
            torch.tensor(wanted),
        )


def loss_of(net: Net, cases: Sequence[Case], states: States) -> Tensor:
    """Return the loss of a batch."""
    vectors, admissions = net([states[case.text] for case in cases])
    batch = Batch.joined(cases)
    cosines = vectors @ batch.rows.T
    mine = batch.own[None] == torch.arange(len(cases))[:, None]
    right = mine & (batch.right == 1)[None]
    logits = (cosines * net.scale.exp()).masked_fill(mine & (batch.right < 0)[None], -1e4)
    others = torch.where(mine, logits.masked_fill(right, -1e4), logits - 1)
    every = torch.logsumexp(torch.cat([others, logits.masked_fill(~right, -1e4)], dim=1), dim=1)
    # Of several right memories each is wanted.
    drawn = (every - (logits * right).sum(1) / right.sum(1).clamp(min=1))[batch.wanted]
    softmax = drawn.mean() if len(drawn) else cosines.sum() * 0
    own = cosines[batch.own, torch.arange(len(batch.own))]
    likely = functional.binary_cross_entropy_with_logits(
        net.slope.exp() * own + net.bias, (batch.right == 1).float(), reduction="none"
    )
    weights = torch.tensor([_ADMISSION[case.kind] for case in cases])
    admitted = functional.binary_cross_entropy_with_logits(admissions, batch.wanted.float(), reduction="none")
    drift = (1 - (vectors * torch.from_numpy(np.stack([case.query for case in cases]))).sum(-1)).mean()
    return (
        softmax
        + _OF_PROBABILITY * (likely * batch.counted).sum() / batch.counted.sum()
        + _OF_ADMISSION * (admitted * weights).sum() / weights.sum().clamp(min=1)
        + _OF_DRIFT * drift
    )


def train(cases: Sequence[Case], states: States, net: Net, epochs: int, rate: float = _RATE) -> Net:
    """Train the layers; each epoch takes one of the searches for each prompt."""
    random = Random(0)
    torch.manual_seed(0)
    searches: defaultdict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in cases:
        searches[
            (case.kind, case.text) if case.kind in GENERAL else (case.kind, case.person, case.text)
        ].append(case)
    own = [net.scale, net.slope, net.bias, *net.admission.parameters()]
    optimizer = torch.optim.AdamW(
        [{"params": net.layers.parameters(), "lr": rate}, {"params": own, "lr": _HEAD_RATE}],
        weight_decay=0.01,
    )
    steps = epochs * len(searches) // _BATCH
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / _WARM_UP) * max(0.03, 1 - step / steps)
    )
    begun = time.monotonic()
    for epoch in range(epochs):
        some = [
            random.choice(each)
            for kind, each in searches.items()
            if kind[0] != "unanswerable" or random.random() < 0.5
        ]
        # Prompts of about the same length are in one batch.
        some.sort(key=lambda case: len(states[case.text]) + 8 * random.random())
        batches = [some[at : at + _BATCH] for at in range(0, len(some), _BATCH)]
        random.shuffle(batches)
        lost = 0.0
        for batch in batches:
            loss = loss_of(net, batch, states)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            lost += float(loss.detach())
        print(f"epoch {epoch}: loss {lost / len(batches):.3f}, {time.monotonic() - begun:.0f} s", flush=True)
    return net.eval()


def mean_of(before: Net, after: Net, states: States) -> Net:
    """Return a net with the mean of the weights of two, whose linear form gives the mean of their admissions.

    What is learnt from long prompts makes short ones such as "rent?" concern no memory.
    """
    known = [prompt_vectors(net, list(states), states) for net in (before, after)]
    earlier = before.state_dict()
    after.load_state_dict({name: (value + earlier[name]) / 2 for name, value in after.state_dict().items()})
    own = prompt_vectors(after, list(states), states)
    wanted = np.mean([[each[text][1] for text in own] for each in known], axis=0)
    vectors = np.stack([vector for vector, _ in own.values()]).astype(np.float64)
    rows = np.hstack([vectors * _LENGTH, np.ones((len(own), 1))])
    # Short prompts, and those near the bar, count more.
    short = np.array([_SHORT_COUNTS if len(text) < _SHORT else 1.0 for text in own])
    weighted = rows * (short * np.where(np.abs(wanted) < _NEAR_BAR, 2.0, 1.0))[:, None]
    form = np.linalg.solve(weighted.T @ rows + np.eye(rows.shape[1]), weighted.T @ wanted)
    after.admission.weight.data = torch.from_numpy(form[None, :-1].astype(np.float32))
    after.admission.bias.data = torch.from_numpy(form[-1:].astype(np.float32))
    return after


def prompt_vectors(
    net: Net, texts: Sequence[str], states: States
) -> dict[str, tuple[NDArray[np.float32], float]]:
    """Return the vectors and admissions of prompts."""
    found: dict[str, tuple[NDArray[np.float32], float]] = {}
    texts = sorted(set(texts), key=lambda text: len(states[text]))
    with torch.no_grad():
        for at in range(0, len(texts), _BATCH):
            some = texts[at : at + _BATCH]
            vectors, admissions = net([states[text] for text in some])
            found |= dict(zip(some, zip(vectors.numpy(), admissions.tolist(), strict=True), strict=True))
    return found


def print_ranks(cases: Sequence[Case], prompts: dict[str, tuple[NDArray[np.float32], float]]) -> None:
    """Print how often a right memory is the nearest and among the nearest three, by the query's vector and by the prompt's."""
    for kind in ("question", "plan"):
        ranks = []
        for case in cases:
            if case.kind == kind and (case.right == 1).any():
                by_each = (case.rows @ case.query, case.rows @ prompts[case.text][0])
                ranks.append([int((one > one[case.right == 1].max()).sum()) for one in by_each])
        places = np.array(ranks)
        print(
            f"{kind}: {len(places)}, first {(places < 1).mean(0).round(3)}, first 3 {(places < 3).mean(0).round(3)}",
            flush=True,
        )


def encoded(texts: Sequence[str], model: E5) -> States:
    """Run all layers but the last over prompts."""
    ids = {text: model.encode(text, query=True)[:_READ_TOKENS] for text in texts}
    return {text: model.shared_states(one).astype(np.float16) for text, one in ids.items()}


def written_file(net: Net, weights: WeightsFile, model: E5) -> bytes:
    """Return the content of the file that `relayer.adapters.local_embedder.trained` reads."""
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    arrays = written_layers(state, last_layers(weights.layers), weights, model) | {
        "admission.w": state["admission.weight"][0] * np.float32(_LENGTH),
        "admission.b": state["admission.bias"],
    }
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def main(
    cases: Annotated[Path, typer.Option(help="The searches that bench.relevance keeps.")],
    epochs: Annotated[int, typer.Option(help="Passes over the prompts.")] = 3,
    fold: Annotated[
        int | None, typer.Option(help="Train only without this fold; -1 is none. All by default.")
    ] = None,
    *,
    on: Annotated[bool, typer.Option("--on", help="Train the package's file further.")] = False,
) -> None:
    """Train the layers, and write them and the vectors of the prompts."""
    torch.set_num_threads(1)
    found: list[Case] = pickle.loads(cases.read_bytes())
    kept = Path(f"{cases}.states")
    if not kept.exists():
        kept.write_bytes(pickle.dumps(encoded(sorted({case.text for case in found}), E5())))
    states: States = pickle.loads(kept.read_bytes())
    folds = folds_of(case.person for case in found)
    weights, centre = WeightsFile(model_file()), np.load(centre_file()).astype(np.float32)[1]
    for one in [fold] if fold is not None else [*range(FOLDS), -1]:
        used = [
            case
            for case in found
            if case.kind in _MEMORY
            and case.person in folds
            and folds[case.person] != one
            and (case.kind not in GENERAL or fold_of(case.person, case.kind, case.text, folds) != one)
            and (case.kind not in ("question", "plan") or (case.right == 1).any())
        ]
        held_out = [case for case in found if fold_of(case.person, case.kind, case.text, folds) == one]
        print(f"fold {one}: {len(used)} searches", flush=True)
        begun = TrainedLayers(trained_file("prompt_layers"), E5().divisors) if on else None
        rate = _RATE * (_RATE_ON if on else 1.0)
        net = train(used, states, Net(weights, centre, begun), epochs, rate)
        if begun is not None:
            net = mean_of(Net(weights, centre, begun).eval(), net, states)
        prompts = prompt_vectors(net, [case.text for case in held_out], states)
        print_ranks(held_out, prompts)
        Path(f"{cases}.{one}").write_bytes(pickle.dumps(prompts))
        if one == -1:
            content = written_file(net, weights, E5())
            trained_file("prompt_layers").write_bytes(content)
            print(f"{hashlib.sha256(content).hexdigest()}, {len(content) / 1e6:.1f} MB")
    parts = {one: Path(f"{cases}.{one}") for one in (*range(FOLDS), -1)}
    if all(part.exists() for part in parts.values()):
        every: Prompts = {
            (one, text): row
            for one, part in parts.items()
            for text, row in pickle.loads(part.read_bytes()).items()
        }
        Path(f"{cases}.prompts").write_bytes(pickle.dumps(every))


if __name__ == "__main__":
    typer.run(main)
