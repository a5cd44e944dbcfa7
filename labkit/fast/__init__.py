"""Replacements that are faster and compute the same."""
