"""The commands of ``gadgetron-ebm``: each a thin layer of words round a function that does the work.

Torch and its kin are imported inside the commands, so that ``--help`` answers at once.
"""
