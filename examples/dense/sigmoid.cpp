// Runs the assembled sigmoid.ptx without Python and without CUDA's headers: `sigmoid FILE.cubin [COUNT]`.
//
// Exits with 0 if the GPU's results match the host's, with 1 if not, and with 2 if it cannot run.

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// CUDA's driver; its functions are looked up by name, so that the program also starts without a driver.
class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
  }

  template <typename... Arguments>
  void call(const char* function, Arguments... arguments) const {
    const int status = reinterpret_cast<int (*)(Arguments...)>(found(function))(arguments...);
    if (status == 0) return;
    const char* text = nullptr;
    reinterpret_cast<int (*)(int, const char**)>(found("cuGetErrorString"))(status, &text);
    throw std::runtime_error(std::string(function) + ": " + (text != nullptr ? text : std::to_string(status)));
  }

 private:
  void* found(const char* function) const {
    void* const address = dlsym(library_, function);
    if (address == nullptr) throw std::runtime_error(std::string("the driver does not have ") + function);
    return address;
  }

  void* library_;
};

using Address = std::uint64_t;  // in device memory

class DeviceArray {
 public:
  DeviceArray(const Driver& driver, std::size_t bytes) : driver_(driver) {
    driver_.call("cuMemAlloc_v2", &address, bytes);
  }
  ~DeviceArray() {
    try {
      driver_.call("cuMemFree_v2", address);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  Address address = 0;

 private:
  const Driver& driver_;
};

std::vector<float> on_gpu(const char* file, const std::vector<float>& x) {
  const Driver driver;
  int device = 0;
  void *context = nullptr, *module = nullptr, *kernel = nullptr;
  driver.call("cuInit", 0u);
  driver.call("cuDeviceGet", &device, 0);
  driver.call("cuDevicePrimaryCtxRetain", &context, device);
  driver.call("cuCtxSetCurrent", context);
  driver.call("cuModuleLoad", &module, file);
  driver.call("cuModuleGetFunction", &kernel, module, "sigmoid_forward");

  const std::size_t bytes = x.size() * sizeof(float);
  const DeviceArray from(driver, bytes), to(driver, bytes);
  driver.call("cuMemcpyHtoD_v2", from.address, static_cast<const void*>(x.data()), bytes);
  std::uint64_t count = x.size();
  Address from_address = from.address, to_address = to.address;
  void* arguments[] = {&from_address, &to_address, &count};
  const unsigned threads = 256, blocks = static_cast<unsigned>((count + threads - 1) / threads);
  driver.call("cuLaunchKernel", kernel, blocks, 1u, 1u, threads, 1u, 1u, 0u, static_cast<void*>(nullptr),
              static_cast<void**>(arguments), static_cast<void**>(nullptr));
  driver.call("cuCtxSynchronize");
  std::vector<float> y(x.size());
  driver.call("cuMemcpyDtoH_v2", static_cast<void*>(y.data()), to.address, bytes);
  return y;
}

}  // namespace

int main(int argc, char** argv) {
  const long count = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 1'000'003;
  if (argc < 2 || argc > 3 || count < 1 || count > 1'000'000'000) {
    std::fprintf(stderr, "usage: sigmoid FILE.cubin [COUNT], with a COUNT of 1 to 1000000000\n");
    return 2;
  }
  std::mt19937 random(0);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = normal(random);

  std::vector<float> y;
  try {
    y = on_gpu(argv[1], x);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sigmoid cannot run here: %s\n", error.what());
    return 2;
  }
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = std::fabs(y[i] - 1.0 / (1.0 + std::exp(-static_cast<double>(x[i]))));
    worst = std::isnan(worst) || error <= worst ? worst : error;  // keeps a NaN
  }
  std::printf("%ld numbers, the largest error is %.1e\n", count, worst);
  return worst < 1e-6 ? 0 : 1;
}
