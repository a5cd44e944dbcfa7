"""Grading: submissions in a sandbox, their marks, and the minute's contest."""
