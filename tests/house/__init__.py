"""The rules of the repository itself: imports, copies, layout and README. Imports nothing of ours.

tree.py lists and parses the files, rules.py holds the layout rules as functions of a root, and
every test that reads the repository has a neighbour that plants a violation and sees it reported.
"""
