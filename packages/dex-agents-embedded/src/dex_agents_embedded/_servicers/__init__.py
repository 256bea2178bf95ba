"""The gRPC services: thin translations between the protocol and the shell."""
