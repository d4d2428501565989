"""What is known about models, GPUs and engine versions: data with sources, and the questions asked of it."""
