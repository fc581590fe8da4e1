"""Triton kernels of the sampler; imported only when chosen.

philox      Philox4x32-10 words, uniforms and the logarithm of their exponentials
noise       counter noise in memory, for arrows of torch
rounding    to a dtype and back
order       keys as integers with one total order, packed with their ids
contest     keys of a tile against those that stand
step        one draft step in one launch, and the launch that ends a block
head        argmax and flags of rows of logits
chain       the launches of a block: tensors, sizes, configurations
acceptance  the greedy accept of a verification
residual    what a rejected draft leaves of a law, and one draw from it
rejection   the accept of sampled rows: chain and block rule
"""
