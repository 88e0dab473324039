// The check of what torch's C functions return; torch 2.10 has it by another name.

#pragma once

#include <torch/csrc/stable/library.h>

#ifndef STABLE_TORCH_ERROR_CODE_CHECK
#define STABLE_TORCH_ERROR_CODE_CHECK(call) TORCH_ERROR_CODE_CHECK(call)
#endif
