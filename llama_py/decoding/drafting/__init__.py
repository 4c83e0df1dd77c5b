"""Speculative decoding: a drafter proposes the next tokens, the model verifies them together in one
batch and accepts tokens that it would have chosen (common/speculative.cpp).

    drafts.py         the drafters of a context's sequences
    drafter.py        base class of draft methods; drafters/ has one file per method
    needs.py          requirements for models and contexts
    statistics.py     drafted and accepted tokens, by position
"""
