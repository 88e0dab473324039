"""Compiles the op during installation if ``SCALE_BUILD_EXT=1``, with the same builder that compiles it at run time."""

import os
import sys

from setuptools import setup

if os.environ.get("SCALE_BUILD_EXT") == "1":
    from torch.utils.cpp_extension import BuildExtension

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from anyaccel_scale.builders import ScaleBuilder

    setup(ext_modules=[ScaleBuilder().builder()], cmdclass={"build_ext": BuildExtension})
else:
    setup()
