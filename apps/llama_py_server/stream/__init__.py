"""Conversion of engine events to the bytes of a response."""
