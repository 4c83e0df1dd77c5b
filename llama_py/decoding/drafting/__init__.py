"""Speculative decoding: something cheap guesses the next tokens, the model checks all of them at
once and keeps those that it would have chosen itself (common/speculative.cpp).

    speculator.py     rounds of drafting and checking, for several sequences at once
    drafter.py        what a way to draft is; drafters/ has one file for each
    rollback.py       how tokens that were refused leave the memory
    needs.py          what it needs of models and contexts
    length.py         how many tokens are worth drafting
    statistics.py     what was drafted and accepted, by position
"""
