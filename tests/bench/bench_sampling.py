"""Writing 128 words with GPT-2-shaped models, against transformers' generate with equal weights.

The weights are random; the last norm is widened, so that the models are as sure of the next word
as trained ones are, and do not expect all words alike.

    python tests/bench/bench_sampling.py [--threads 2] [--rounds 5]

Prints tokens a second of both, measured in turn in one process, and the median of their ratios;
then what a word costs as the text grows; then beams.  The last columns of the first table say what
is left to gain: the share of our time that the bare products take (those with the weights and those
of attention, nothing else being done), and the limit, the ratio if they were all that we did.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from labkit.fast.decoding import Decoder
from labkit.sampling import Sampling, sample
from labkit.weights import load
from labkit.writing.beam import beam

VOCABULARY, NEW = 5000, 128
SPREAD = 3.2
"""How far the scores of the words are spread: their standard deviation."""
HOW = Sampling(length=NEW, temperature=0.9, top_p=0.9)


def pair(width: int, layers: int) -> tuple[torch.nn.Module, GPT2LMHeadModel]:
    """The same random weights in both packages."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=width, n_layer=layers, n_head=width // 32, n_positions=1100,
        bos_token_id=0, eos_token_id=None,
    )  # fmt: skip
    theirs = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        theirs.transformer.ln_f.weight.fill_(SPREAD / config.initializer_range / width**0.5)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return load(folder), theirs


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> list[float]:
    """Both in turn: median seconds of each, and the median ratio theirs / ours."""
    ours(), theirs()
    times = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    ratio = statistics.median(b / a for a, b in times)
    return [statistics.median(column) for column in zip(*times, strict=True)] + [ratio]


def writing(rounds: int) -> None:
    """Tokens a second, the best word or a drawn one, for one prompt and for sixteen."""
    ours, _ = pair(128, 4)
    unsure = torch.distributions.Categorical(logits=ours(torch.arange(64)[None])).entropy().mean()
    print(
        f"\n{NEW} new words, vocabulary {VOCABULARY}, {unsure:.1f} nats per word; drawn: "
        "temperature 0.9, top-p 0.9"
    )
    print(
        f"{'model':>8} {'prompts':>8} {'words':>7} {'labkit tok/s':>13} {'transformers':>13} "
        f"{'ratio':>6} {'bare products':>14} {'limit':>6}"
    )
    for width, layers in ((128, 4), (256, 8)):
        ours, theirs = pair(width, layers)
        for prompts in (1, 16):
            tokens = torch.randint(0, VOCABULARY, (prompts, 8))
            bare = NEW * bare_products(ours, prompts)
            for words, how in (("best", Sampling(length=NEW, temperature=0)), ("drawn", HOW)):
                a, b, ratio = compare(
                    partial(sample, ours, tokens.tolist(), how),
                    partial(generate, theirs, tokens, drawn=words == "drawn"),
                    rounds,
                )
                size, many = f"{width} x {layers}", prompts * NEW
                print(
                    f"{size:>8} {prompts:>8} {words:>7} {many / a:>13.0f} {many / b:>13.0f} "
                    f"{ratio:>6.2f} {bare / a:>14.0%} {b / bare:>6.1f}"
                )


def generate(
    model: GPT2LMHeadModel, tokens: torch.Tensor, *, drawn: bool, new: int = NEW, **settings: Any
) -> None:
    """The same with transformers."""
    how = {"do_sample": True, "temperature": 0.9, "top_p": 0.9, "top_k": 0} if drawn else {}
    model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, pad_token_id=0,
        **({"do_sample": False} | how), **settings,
    )  # fmt: skip


@torch.inference_mode()
def bare_products(model: torch.nn.Module, rows: int) -> float:
    """Seconds of all products for a word in the middle of the text, with nothing between them."""
    begun = torch.zeros(rows, 8 + NEW // 2, dtype=torch.long)
    decoder = Decoder(model, model.backbone(begun, memory=()).memory, 8 + NEW)
    config = model.backbone.config
    x = torch.randn(rows, config.width)
    q = torch.randn(rows * config.heads, 1, config.width // config.heads)

    def multiply() -> None:
        for block in decoder.blocks:
            block.query_key_value(x), block.out(x), block.down(block.up(x))
            k, v = (part.narrow(1, 0, decoder.filled) for part in (block.keys, block.values))
            torch.bmm(torch.bmm(q, k.transpose(1, 2)), v)
        decoder.words(x)

    return statistics.median(seconds(multiply) for _ in range(100))


def growing(rounds: int) -> None:
    """What one more word costs in texts of growing length."""
    ours, _ = pair(256, 8)
    print("\nmilliseconds for each word of a text of so many words (256 x 8)")
    for length in (64, 128, 256, 512, 1024):
        how = Sampling(length=length, temperature=0.9, top_p=0.9)
        times = [seconds(lambda how=how: sample(ours, [[1]], how)) for _ in range(rounds)]
        print(f"{length:>6} {1000 * statistics.median(times) / length:>8.2f}")


def beams(rounds: int) -> None:
    """A beam of four."""
    print("\nbeam of 4, 128 new words")
    for width, layers in ((128, 4), (256, 8)):
        ours, theirs = pair(width, layers)
        tokens = torch.randint(0, VOCABULARY, (1, 8))

        def generate_beams(theirs=theirs, tokens=tokens) -> None:
            theirs.generate(
                tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=NEW, num_beams=4,
                do_sample=False, pad_token_id=0,
            )  # fmt: skip

        search = partial(beam, ours, tokens[0].tolist(), Sampling(length=NEW), beams=4)
        a, b, ratio = compare(search, generate_beams, rounds)
        size = f"{width} x {layers}"
        print(f"{size:>10} labkit {a:.2f} s, transformers {b:.2f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, median of {options.rounds}")
    for section in (writing, growing, beams):
        section(options.rounds)
