"""From a pre-trained model to a task: another head, and a say in which layers learn."""

from labkit.transfer.groups import *  # noqa: F403
