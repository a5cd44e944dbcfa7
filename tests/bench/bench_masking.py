"""Hiding 15 % of a batch of 256 x 512 tokens, against the collator of `transformers`; on one core.

    python tests/bench/bench_masking.py [--turns 15]

Both hide the same tokens in the same process, in turns; times are medians of the processor's own
time. The collator is given what suits it best as well: tensors whose special tokens are marked, so
that it need not ask its tokenizer, and its masking alone, without collating. Below, what else is
drawn for a batch, and pairs of sentences.
"""

import argparse
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from tokenizers import Tokenizer as Fast
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from labkit.chance import Chance
from labkit.corpus import Batch, Pairs, from_documents, tokenize
from labkit.objectives import MaskedToken, Permutation, hiding
from labkit.text.tokenizers import Tokenizer
from labkit.text.vocabulary import Vocabulary

BATCH, LENGTH, WORDS = 256, 512, 30_522
PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = Vocabulary(WORDS, PAD, UNK, CLS, SEP, MASK, (PAD, UNK, CLS, SEP, MASK))


def texts() -> Tensor:
    """[CLS] words [SEP], without padding."""
    tokens = torch.randint(5, WORDS, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    tokens[:, 0], tokens[:, -1] = CLS, SEP
    return tokens


def collator() -> DataCollatorForLanguageModeling:
    """The collator over a vocabulary of the same size."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    table = {name: i for i, name in enumerate(names)} | {f"w{i}": i for i in range(5, WORDS)}
    special = dict(zip(("pad", "unk", "cls", "sep", "mask"), names, strict=True))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Fast(WordLevel(table, unk_token="[UNK]")),
        **{f"{role}_token": name for role, name in special.items()},
    )
    return DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)


def theirs(tokens: Tensor) -> dict[str, Callable[[], object]]:
    """The collator, given the tokens in three ways."""
    collate, special = collator(), tokens < 5
    lists = [{"input_ids": row.tolist()} for row in tokens]
    marked = [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "special_tokens_mask": row < 5}
        for row in tokens
    ]
    return {
        "DataCollatorForLanguageModeling, lists": lambda: collate(lists),
        "the same, tensors, special tokens marked": lambda: collate([dict(r) for r in marked]),
        "its masking alone, special tokens marked": lambda: collate.torch_mask_tokens(
            tokens.clone(), special
        ),
    }


def ours(tokens: Tensor) -> dict[str, Callable[[], object]]:
    """What `labkit` draws for a batch."""
    batch = Batch.of(tokens, words=torch.arange(LENGTH).expand(BATCH, -1) // 2)
    chance = Chance(1, 2, batch.rows)
    candidates = hiding.ordinary(tokens, batch.real, VOCABULARY)

    def hide() -> Tensor:
        found = hiding.ordinary(tokens, batch.real, VOCABULARY)
        return hiding.corrupt(tokens, hiding.choose_tokens(found, chance, 0.15), chance, VOCABULARY)

    asked = {
        unit: MaskedToken(vocabulary=VOCABULARY, unit=unit) for unit in ("token", "word", "span")
    }
    permuted = Permutation(vocabulary=VOCABULARY)
    return {
        "hide 15 %, 80/10/10": hide,
        "MaskedToken.ask": lambda: asked["token"].targets(batch, chance),
        "MaskedToken.ask, whole words": lambda: asked["word"].targets(batch, chance),
        "MaskedToken.ask, spans": lambda: asked["span"].targets(batch, chance),
        "orders": lambda: hiding.order(candidates, chance, 1 / 6),
        "orders, spans": lambda: hiding.order(candidates, chance, 1 / 6, spans=True),
        "Permutation.ask": lambda: permuted.targets(batch, chance),
    }


def pairs() -> dict[str, Callable[[], object]]:
    """Pairs of sentences, of the same shape."""
    words = [f"w{i}" for i in range(1000)]
    stories = [
        " ".join(
            " ".join(words[(7 * d + 3 * s + w) % 1000] for w in range(20)) + " ." for s in range(60)
        )
        for d in range(400)
    ]
    tokens = tokenize(from_documents(stories), Tokenizer.words(stories))
    made = {q: Pairs(tokens, LENGTH, q, batch=BATCH) for q in ("next", "order")}
    step = iter(range(10**9))
    return {
        "pairs: next sentence": lambda: made["next"].at(next(step)),
        "pairs: sentence order": lambda: made["order"].at(next(step)),
    }


def measure(what: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Seconds of each, the median over the turns."""
    taken: dict[str, list[float]] = {name: [] for name in what}
    for turn in range(turns + 1):
        for name, run in what.items():
            began = time.process_time()
            run()
            if turn:
                taken[name].append(time.process_time() - began)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=15)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    tokens = texts()
    own = ours(tokens)
    found = measure(theirs(tokens) | own | pairs(), turns)
    hiding_time = found["hide 15 %, 80/10/10"]
    print(f"{BATCH} x {LENGTH} tokens, one core of {platform.processor() or platform.machine()}")
    print("\n| what | ms | million tokens/s | hiding is faster by |\n|---|---:|---:|---:|")
    for name, seconds in found.items():
        faster = "" if name in own or name.startswith("pairs") else f"{seconds / hiding_time:.0f}x"
        speed = tokens.numel() / seconds / 1e6
        print(f"| {name} | {1e3 * seconds:.2f} | {speed:.1f} | {faster} |")


if __name__ == "__main__":
    main()
