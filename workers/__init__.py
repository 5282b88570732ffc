"""One job is one turn: the only code that runs inference on vLLM."""
