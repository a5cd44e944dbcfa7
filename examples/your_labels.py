"""From your own table of texts, of which few have a label, to a classifier.

    python examples/your_labels.py reviews.csv --text review --label stars
    python examples/your_labels.py reviews.jsonl --backbone real     # pip install 'labkit[real]'

A row whose label is empty (or None) is text without a label.  A fifth of the labelled rows is kept
for the test, `--labels` of the others are learned from; all text but the test's is read before.
"""

import argparse
import random
import time
from dataclasses import replace

from classroom.recipes import plan
from labkit.blocks import Classifier, LanguageModel
from labkit.corpus import Examples, Streams, Windows, from_documents, from_table, tokenize
from labkit.heads import NextWord, Pooled
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import Trainer, evaluate
from labkit.transfer import classifier, labels_of
from labkit.transfer.finetuning import Tuning, fine_tune, ulmfit
from labkit.weights import load, load_tokenizer, real_encoder

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file", help="a .csv, .tsv or .jsonl")
parser.add_argument("--text", default="text", help="the column of the texts")
parser.add_argument("--label", default="label", help="the column of the labels")
parser.add_argument("--backbone", choices=("ulmfit", "gpt", "real"), default="ulmfit")
parser.add_argument("--labels", type=int, default=100, help="learn from so many of them")
parser.add_argument("--steps", type=int, default=500, help="of reading text before")
given = parser.parse_args()

start, table = time.perf_counter(), from_table(given.file, given.text, given.label)
known = [row for row in table if row.label is not None]
random.Random(0).shuffle(known)
if len(known) < 10 or len(table.classes) < 2:
    parser.error(f"{len(known)} rows of {given.file} have a label, of {len(table.classes)} kinds: "
                 "give at least 10 rows and 2 kinds")  # fmt: skip
test = known[: len(known) // 5]
kept = {row.text for row in test}
rest = [row for row in known if row.text not in kept]
texts = from_documents([row.text for row in table if row.text not in kept])
tokenizer = (
    load_tokenizer(real_encoder()) if given.backbone == "real"
    else Tokenizer.words(texts.texts, size=8000)
)  # fmt: skip
read = tokenize(texts, tokenizer)
few, asked = (
    Examples(tokenize(replace(table, read=some.__iter__), tokenizer), batch=16, length=128,
             framed=given.backbone == "real")
    for some in (rest[: given.labels], test)
)  # fmt: skip
labels, tuning = len(table.classes), plan(steps=12 * few.steps, rate=2e-3)
if given.backbone == "real":
    encoder = load(real_encoder())
    head = Pooled(encoder.config.width, labels, parts=("mean",), inner=None)
    model = Classifier(encoder, head)
    fine_tune(model, labels_of(model), few, Tuning(plan=plan(steps=8 * few.steps, rate=1e-3)))
elif given.backbone == "gpt":
    backbone = GPT(GPTConfig(len(tokenizer), width=128, layers=2, heads=4, context=128))
    language_model = LanguageModel(backbone, NextWord(backbone.token))
    windows = Windows(read, batch=8, length=128)
    for _ in Trainer(language_model, NextToken(), windows, plan(given.steps)).run():
        pass
    model = classifier(language_model, labels)
    fine_tune(model, labels_of(model), few, Tuning(plan=tuning))
else:
    # A small model that reads each word a few times only needs no dropout.
    backbone = AWDLSTM(AWDLSTMConfig(len(tokenizer), 96, 96, 2, 0.0, 0.0, 0.0, 0.0, 0.0))
    language_model = LanguageModel(backbone, NextWord(backbone.token))
    tuning = plan(max(120, 20 * few.steps), rate=1e-2, schedule="slanted_triangle", warmup=None)
    stages = [plan(given.steps, rate=3e-2), tuning, tuning]
    streams = Streams(read, batch=8, length=32)
    found = ulmfit(language_model, streams, None, few, labels=labels, plans=stages)
    model = found.classifier

accuracy = evaluate(model, labels_of(model), asked).metrics["label right"]
most = max(sum(row.label == n for row in test) for n in range(labels)) / len(test)
print(f"accuracy {accuracy:.3f} on {len(test)} texts; the most frequent label has {most:.3f}")
print(f"{few.size} labels, {len(read):,} tokens read, {time.perf_counter() - start:.0f} s in all")
