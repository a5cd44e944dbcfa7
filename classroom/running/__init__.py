"""Runs of notebooks: one run, sweeps, checks of parameters, child processes."""
