"""The players of duels: each module has sound versions, versions with bugs, and a symptom.

A module has `TOPIC`, for `duel`, and `SYMPTOM`, for `diagnose`. Every bug lived in a real project:
`where` names the project and the thread.
"""
