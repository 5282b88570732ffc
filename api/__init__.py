"""HTTP in, events out: the FastAPI side. Never talks RQ internals or vLLM inference."""
