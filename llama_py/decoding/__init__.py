"""How sequences go on: what the memory holds of them, what is drafted, what a shift keeps."""
