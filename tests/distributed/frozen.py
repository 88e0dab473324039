"""The last import of the process whose forks are ranks: they do not look for garbage in what it has imported.

That would copy its memory, and takes 0.2 s.
"""

import gc

gc.collect()
gc.freeze()
