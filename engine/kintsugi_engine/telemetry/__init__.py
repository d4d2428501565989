"""What is measured inside a vLLM engine: its block pool, its workers' allocators, its container's memory."""
