"""Notebooks as web pages: slides with live widgets, and a site of files."""
