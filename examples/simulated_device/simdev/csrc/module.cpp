// The Python module, which only loads the library; torch.simdev calls torch ops for everything that torch itself does
// not provide.

#include <Python.h>
#include <torch/library.h>

#include "device.h"
#include "generator.h"

namespace {

TORCH_LIBRARY(simdev, library) {
  library.def("device_count", [] { return static_cast<int64_t>(simdev::kDeviceCount); });
  library.def("default_generator",
              [](int64_t device) { return simdev::default_generator(static_cast<c10::DeviceIndex>(device)); });
}

PyModuleDef definition{PyModuleDef_HEAD_INIT, "simdev", nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_simdev() { return PyModule_Create(&definition); }
