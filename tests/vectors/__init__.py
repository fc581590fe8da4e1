"""What runs the recorded vectors: our sampler, and a program in C that shares no line with it."""
