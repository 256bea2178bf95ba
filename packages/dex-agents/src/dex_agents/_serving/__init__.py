"""How a host serves agents: the embedded engine, the Worker, the signals of the system."""
