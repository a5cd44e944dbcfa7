"""Counting and pricing: parameters, operations, days and money."""
