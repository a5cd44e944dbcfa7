"""Tokenizers and labelled tables."""
