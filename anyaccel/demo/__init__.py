"""The program behind ``anyaccel demo``: a small transformer, trained data-parallel on whatever the machine has."""
