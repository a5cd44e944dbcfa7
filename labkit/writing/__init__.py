"""Writing beyond sampling: the likeliest text, blanks, prompts."""
