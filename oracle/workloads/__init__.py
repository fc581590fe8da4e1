"""Where inputs come from: synthetic.py draws them from a seed, smollm2.py reads a real model."""
