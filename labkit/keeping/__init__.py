"""What keeps a long run alive: checkpoints, precision, several processes, reports."""
