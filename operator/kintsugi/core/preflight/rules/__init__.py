"""The rules, one file per subject."""
