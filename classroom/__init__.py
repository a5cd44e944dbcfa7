"""What the course needs: its models and tasks, demos, claims, exercises, grading and pages."""
