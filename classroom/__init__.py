"""The classroom: demos, claims, exercises, the command line, and pages of the course."""
