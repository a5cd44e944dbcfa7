"""Tasks and texts: tagging, translation, instructions, addresses, your own text."""
