"""Single ideas, measured over resamples: each module is a command (``python -m benchmarks.ideas.knee_rule``)."""
