"""Notebooks as pages of a browser: slides with live widgets, and a site of files."""
