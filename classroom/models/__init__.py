"""Recipes of the course's models, their training, and the models that ship."""
