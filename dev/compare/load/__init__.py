"""Clients that ask a server for answers and note when each token came."""
