// The Python module, which loads the rest and is empty; what torch.simdev needs beyond torch's own functions are torch
// ops.

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
