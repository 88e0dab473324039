"""Everything that one GPU is asked in a day, in one command: ``make gpu-day OUT=dir``."""
