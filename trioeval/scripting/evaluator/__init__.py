"""Holds one program alone: the folder of a program is where Python looks for modules first."""
