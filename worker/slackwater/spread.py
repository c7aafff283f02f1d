"""Waits that keep a fleet from acting in step. Rule: a random time in the upper half of the window."""

from __future__ import annotations

import random


def spread(window_seconds: float) -> float:
    return window_seconds * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards nothing
