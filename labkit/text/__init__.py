"""From text to tokens: documents from files and tables, tokenizers, the tokens of a corpus."""
