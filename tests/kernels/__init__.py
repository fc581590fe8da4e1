"""The Triton kernels: compiled on a GPU, in Triton's interpreter elsewhere."""
