"""Kernel lists of programs that others published the speed of, made from their models' shapes.

Bytes are counted: what each kernel reads and writes once. They run through the same model and timeline as a
profile of one's own program.
"""
