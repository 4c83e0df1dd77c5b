"""Importance matrices: which inputs of a weight matrix are large (tools/imatrix/imatrix.cpp)."""
