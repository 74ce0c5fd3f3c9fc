"""Passes over FX graphs, the currency between stages: a graph in, a graph out, the same class."""
