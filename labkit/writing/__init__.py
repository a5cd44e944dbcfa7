"""Writing beyond sampling: the likeliest text, blanks, prompts, and how good a text is."""
