"""What `dex-agents demo` does: an agent's turn while its Worker and its engine are killed."""
