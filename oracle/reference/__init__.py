"""The sampler pipeline in plain torch: slow, stateless, float64, and meant to be beyond dispute.

logits -> bias -> noise -> choice -> draft -> acceptance, one file a noun; `gate` holds the three
decision tables and `law` the exact laws of small vocabularies. Low precision appears only at the
rounding points P1 (base logits) and P2 (step logits); everything between them is float64.
"""
