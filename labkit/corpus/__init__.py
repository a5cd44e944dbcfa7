"""From text to batches: documents → tokens → rows, each batch a function of (seed, step).

    texts, held_out = from_files("books/*.txt").split()   # or from_table, from_hub, from_documents
    tokenizer = Tokenizer.bpe(texts.texts, size=8000)
    tokens = tokenize(texts, tokenizer, cache="runs/cache")
    batches = Windows(tokens, batch=32, length=128)         # or Streams, Examples, Pairs
    batches.at(step)

Read `labkit.text.documents` and `.tokens`, then `rows`, `batches`, `padded` and `pairs` here.
`labkit.text` never imports this package: it makes the tokens, and they are laid out here.
"""

from labkit.corpus.batch import Batch, Batches, pad_rows, sent
from labkit.corpus.batches import Epochs, Stages, Streams, Windows
from labkit.corpus.padded import Examples
from labkit.corpus.pairs import Pairs
from labkit.text.documents import Document, Documents, from_documents
from labkit.text.encoding import tokenize
from labkit.text.files import from_files
from labkit.text.tables import from_hub, from_table
from labkit.text.tokens import Tokens

__all__ = [
    "Batch",
    "Batches",
    "Document",
    "Documents",
    "Epochs",
    "Examples",
    "Pairs",
    "Stages",
    "Streams",
    "Tokens",
    "Windows",
    "from_documents",
    "from_files",
    "from_hub",
    "from_table",
    "pad_rows",
    "sent",
    "tokenize",
]
