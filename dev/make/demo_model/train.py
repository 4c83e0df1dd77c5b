"""Train the demo model on one text and write it as GGUF.

    python -m dev.make.demo_model.train --corpus tinyshakespeare.txt --out OUT

Takes 20 minutes on 2 cores. OUT gets demo-f32.gguf, demo-f16.gguf, demo.gguf (Q8_0), best.pt,
tokenizer.json and train.log. A run is determined by --seed, --threads and the versions used.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tokenizers as tk
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dev.make.demo_model import data, delta, export, tokenizer
from dev.make.demo_model.evaluate import WINDOW, Figures, evaluate, generate
from dev.make.demo_model.model import Config, Model

log = logging.getLogger("demo_model")


@dataclass(frozen=True)
class Recipe:
    """Training settings of the bundled model, which is step 2700 of a 3000-step schedule."""

    seed: int = 1
    threads: int = 2
    steps: int = 3000
    stop: int = 2700
    batch: int = 4
    lr: float = 2.5e-3
    final_lr: float = 0.02  # last learning rate of the cosine, as a fraction of lr
    warmup: int = 100
    weight_decay: float = 0.4
    mtp_weight: float = 0.3
    balance_weight: float = 0.02
    eval_every: int = 300
    log_every: int = 50

    def lr_at(self, step: int) -> float:
        """Return the learning rate: a linear warmup, multiplied by a cosine over `steps`."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        decay = self.final_lr + (1 - self.final_lr) * cosine
        return self.lr * min(1.0, step / self.warmup) * decay


def optimizer(model: Model, r: Recipe) -> torch.optim.Optimizer:
    """Return AdamW with weight decay, except for norms, gates and convolutions."""
    matrices, others = [], []
    for name, p in model.named_parameters():
        (matrices if p.dim() >= 2 and "conv" not in name else others).append(p)
    groups = [
        {"params": matrices, "weight_decay": r.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=r.lr, betas=(0.9, 0.95), fused=True)


def losses(model: Model, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return trunk, MTP and load balancing loss of a batch.

    The MTP layer learns half from the text and half from the trunk's own distribution, because
    drafts are accepted if they agree with the trunk.
    """
    target = y.flatten()
    trunk, mtp = (logits.flatten(0, 1) for logits in model(x))
    text = F.cross_entropy(trunk, target)
    agree = F.cross_entropy(mtp, trunk.detach().softmax(-1))
    moes = model.moes()
    balance = sum(m.balance for m in moes) / len(moes)
    return text, 0.5 * F.cross_entropy(mtp, target) + 0.5 * agree, balance


def steps(model: Model, ids: Tensor, r: Recipe) -> Iterator[tuple[int, list[float]]]:
    """Train; yield each step and the smoothed trunk, MTP and balance losses."""
    opt, smooth = optimizer(model, r), None
    batches = data.windows(ids, r.batch, WINDOW, r.seed)
    for step in range(1, min(r.steps, r.stop) + 1):
        for group in opt.param_groups:
            group["lr"] = r.lr_at(step)
        text, mtp, balance = losses(model, *next(batches))
        opt.zero_grad(set_to_none=True)
        (text + r.mtp_weight * mtp + r.balance_weight * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        parts = torch.stack([text, mtp, balance]).detach()
        smooth = parts if smooth is None else 0.95 * smooth + 0.05 * parts
        yield step, smooth.tolist()


def train(model: Model, ids: Tensor, held_out: Tensor, r: Recipe) -> Figures:
    """Train `model` on `ids`, restore its best checkpoint on `held_out`, and return its figures."""
    best, best_state, start = None, {}, time.perf_counter()
    for step, (text, mtp, balance) in steps(model, ids, r):
        done = (
            f"step {step:5d} epoch {step * r.batch * WINDOW / len(ids):5.1f} "
            f"{(time.perf_counter() - start) / 60:5.1f} min lr {r.lr_at(step):.2e} "
            f"train {text:.3f} mtp {mtp:.3f} bal {balance:.3f}"
        )
        if step % r.eval_every == 0 or step in (r.steps, r.stop):
            now = evaluate(model, held_out, WINDOW)
            if best is None or now.loss < best.loss:
                best = now
                best_state = {name: t.clone() for name, t in model.state_dict().items()}
            log.info(
                f"{done} | held-out {now.loss:.4f} ppl {now.perplexity:.2f} "
                f"mtp {now.mtp_loss:.3f} accept {now.accept:.3f} | best {best.loss:.4f}"
            )
        elif step % r.log_every == 0:
            log.info(done)
    if best is None:
        raise ValueError(f"no training step: the recipe stops at step {min(r.steps, r.stop)}")
    model.load_state_dict(best_state)
    return best


def report(model: Model, bpe: tk.Tokenizer, held_out: Tensor, seed: int) -> None:
    """Log the held-out figures by window, the expert load and two samples."""
    for window in (256, 512, 1024):
        log.info(f"held-out, window {window}: {evaluate(model, held_out, window, batch=4)}")
    load = "; ".join(" ".join(f"{x:.2f}" for x in moe.load) for moe in model.moes())
    log.info(f"expert load by layer: {load}")
    rng, prompt = torch.Generator().manual_seed(seed), bpe.encode("ROMEO:\n").ids
    for temperature in (0.8, 0.0):
        ids, hits = generate(model, prompt, 160, temperature, rng)
        log.info(f"temperature {temperature}, accepted drafts {hits:.2f}\n{bpe.decode(ids)}")


def run(corpus_file: Path, out: Path, r: Recipe) -> None:
    """Run the whole recipe: tokenizer, network, checks, training, files."""
    torch.set_num_threads(r.threads)
    torch.manual_seed(r.seed)
    corpus, c = data.read(corpus_file), Config()
    bpe = tokenizer.train(corpus.train, c.n_vocab)
    bpe.save(str(out / "tokenizer.json"))
    ids, held_out = (torch.tensor(bpe.encode(t).ids) for t in (corpus.train, corpus.held_out))
    log.info(
        f"train {len(ids)} tokens, held out {len(held_out)} tokens "
        f"= {len(corpus.held_out)} characters"
    )
    model = Model(c)
    total, mtp = (sum(p.numel() for p in m.parameters()) for m in (model, model.mtp))
    log.info(f"parameters {total}, including {mtp} of MTP; {r}")
    log.info(f"delta rule, chunked and sequential differ by {delta.largest_difference():.1e}")
    train(model, ids, held_out, r)
    torch.save(model.state_dict(), out / "best.pt")
    vocabulary = tokenizer.vocabulary(bpe)
    for name, kind in (("demo-f32", "F32"), ("demo-f16", "F16"), ("demo", "Q8_0")):
        export.write(model, vocabulary, out / f"{name}.gguf", kind)
    report(model, bpe, held_out, r.seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", required=True, type=Path, help="UTF-8 text, 5 %% held out")
    parser.add_argument("--out", required=True, type=Path, help="folder for the results")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--threads", type=int, default=Recipe.threads)
    parser.add_argument(
        "--stop-step", type=int, default=Recipe.stop, help="last step; the schedule is unchanged"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler())
    log.addHandler(logging.FileHandler(args.out / "train.log", "w"))
    run(args.corpus, args.out, Recipe(seed=args.seed, threads=args.threads, stop=args.stop_step))


if __name__ == "__main__":
    main()
