"""Beam search, filling blanks, prompts, and the quality of what a model writes."""
