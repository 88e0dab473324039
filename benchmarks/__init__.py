"""The benchmarks: separate programs, which ``anyaccel bench`` runs one after another. ``suite.py`` lists them."""
