"""The judge: the only code that decides, from histories alone.

protocol -> script -> drive -> history -> checks -> verdict -> report; trial strings them together.
margin, significance and budget hold the numbers; coupling walks the reference along what was seen.
"""
