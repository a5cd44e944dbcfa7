"""Counting and pricing: parameters, operations, memory, days and money."""
