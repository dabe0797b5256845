"""hansfree: find the shortcut a trained vision model relies on, unlearn it, and prove that it is gone."""
