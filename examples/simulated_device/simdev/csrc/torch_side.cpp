// All code that registers torch ops, as one translation unit: torch's headers take 6 s in each.

#include "cells.cpp"
#include "fallback.cpp"
#include "hooks.cpp"
#include "kernels.cpp"
#include "module.cpp"
