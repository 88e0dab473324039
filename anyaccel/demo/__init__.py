"""The program behind ``anyaccel demo``: a small transformer, trained data-parallel on this machine's accelerator."""
