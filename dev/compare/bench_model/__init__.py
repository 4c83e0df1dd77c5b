"""Parts of make_bench_model.py: shapes, random blocks, mixes of types, vocabularies."""
