"""The page on which images are labelled."""
