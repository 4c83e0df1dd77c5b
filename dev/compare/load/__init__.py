"""Clients that send requests to a server and record the time of each token."""
