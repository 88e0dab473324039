"""The benchmarks: programs of their own, which ``anyaccel bench`` runs one after another. ``suite.py`` lists them."""
