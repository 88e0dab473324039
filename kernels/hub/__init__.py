"""Files that ``anyaccel build --hub`` copies next to an op's functions, for Hugging Face's kernels; they need only torch."""
