"""Ports code that is written for CUDA to every accelerator, and finds what is still tied to CUDA.

``migrate_source`` in :mod:`anyaccel.migrate.source` does a module, ``migrate_notebook`` a notebook, ``migrate_files`` many.
"""
