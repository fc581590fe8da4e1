"""Speculative decoding: requests in, tokens out, every step on record.

request   what is asked for, and how far it is
network   what the target model offers: hidden states and logits of rows that continue their slots
drafter   the draft forward over the target's hidden states: what is captured before the tail
loop      Decoder: admit, propose, verify, accept, commit, finish
subject   the decoder behind the verbs of a judge
"""
