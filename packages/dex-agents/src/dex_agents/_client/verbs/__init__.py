"""The verbs of `AgentSessionClient`, by what they are about."""
