"""Why things are as they are: a fleet's status in plain words, and the article's troubleshooting list."""
