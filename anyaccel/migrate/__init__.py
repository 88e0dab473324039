"""Ports CUDA code to every accelerator, and finds code that still depends on CUDA.

``migrate_source`` in :mod:`anyaccel.migrate.source` migrates one module, ``migrate_notebook`` one notebook, and
``migrate_files`` many files.
"""
