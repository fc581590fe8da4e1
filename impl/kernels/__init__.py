"""Triton kernels of the sampler: philox, order, step, head, acceptance; imported only when chosen.

philox      Philox4x32-10 words, uniforms and the logarithm of their exponentials
order       keys as integers with one total order, packed with their ids
step        one draft step in one launch, and the launch that ends a block
head        argmax and flags of logits that are there, and of a product that is never stored
acceptance  what a verification commits
"""
