"""Speculative decoding: something cheap guesses the next tokens, the model checks all of them at
once and keeps those that it would have chosen itself (common/speculative.cpp).

    drafts.py         the drafters of a context's sequences
    drafter.py        what a way to draft is; drafters/ has one file for each
    needs.py          what it needs of models and contexts
    statistics.py     what was drafted and accepted, by position
"""
