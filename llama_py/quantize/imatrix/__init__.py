"""Importance matrices: the size of a weight matrix's inputs (tools/imatrix/imatrix.cpp)."""
