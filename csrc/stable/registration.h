// Registers an op's functions with torch: schemas, and the function for each dispatch key.

#pragma once

#include <torch/csrc/stable/library.h>

#include <string>

#include "guarded.h"

// The namespace of the torch ops. A library that another package carries has its own, so that a process can also load
// ours (op_builder/hub).
#ifndef ANYACCEL_NAMESPACE
#define ANYACCEL_NAMESPACE anyaccel
#endif

namespace anyaccel {

struct Registration {
  const char* schema;
  BoxedKernel function;
  BoxedKernel on_sycl;
  BoxedKernel on_flagged;  // null if torch may pass materialised tensors instead
};

inline std::string name_in(const char* schema) {
  const std::string text = schema;
  return text.substr(0, text.find('('));
}

}  // namespace anyaccel

#define ANYACCEL_IMPLEMENT(space, key, registrations, which)            \
  STABLE_TORCH_LIBRARY_IMPL(space, key, library) {                      \
    for (const anyaccel::Registration& one : registrations) {           \
      if (one.which != nullptr) {                                       \
        library.impl(anyaccel::name_in(one.schema).c_str(), one.which); \
      }                                                                 \
    }                                                                   \
  }

#define ANYACCEL_REFUSE_FLAGGED(space, registrations)             \
  ANYACCEL_IMPLEMENT(space, Negative, registrations, on_flagged)  \
  ANYACCEL_IMPLEMENT(space, Conjugate, registrations, on_flagged) \
  ANYACCEL_IMPLEMENT(space, ZeroTensor, registrations, on_flagged)

#define ANYACCEL_DEFINE(space, registrations)                 \
  STABLE_TORCH_LIBRARY_FRAGMENT(space, library) {             \
    for (const anyaccel::Registration& one : registrations) { \
      library.def(one.schema);                                \
    }                                                         \
  }
