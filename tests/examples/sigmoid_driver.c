/* Stands in for libcuda.so.1 where sigmoid.cpp runs without a GPU: what it is asked in another order is refused. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int step = 0;

/* 0 where this call is the next one; an error otherwise, or where FAILS names it. */
static int next(int wanted, const char *name) {
  const char *failing = getenv("FAILS");
  if (step != wanted || (failing && strcmp(failing, name) == 0)) return 999;
  step = wanted + 1;
  return 0;
}

int cuGetErrorString(int status, const char **text) {
  *text = status == 999 ? "as asked" : "unknown";
  return 0;
}
int cuInit(unsigned flags) { return next(0, __func__) || flags; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return next(1, __func__); }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &step; return next(2, __func__) || device; }
int cuCtxSetCurrent(void *context) { return next(3, __func__) || context != &step; }
int cuModuleLoad(void **module, const char *file) {
  *module = &step;
  return next(4, __func__) || strcmp(file, "sigmoid.cubin") != 0;
}
int cuModuleGetFunction(void **kernel, void *module, const char *name) {
  *kernel = &step;
  return next(5, __func__) || module != &step || strcmp(name, "sigmoid_forward") != 0;
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  const int failed = next(step == 6 ? 6 : 7, __func__);
  *address = failed ? 0 : (uint64_t)malloc(bytes);
  return failed;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  memcpy((void *)to, from, bytes);
  return next(8, __func__);
}
int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  const float *x = *(float **)arguments[0];
  float *y = *(float **)arguments[1];
  const uint64_t count = *(uint64_t *)arguments[2];
  const char *wrong = getenv("WRONG_BY");
  if (kernel != &step || gy * gz * by * bz != 1 || shared || stream || extra) return 1;
  for (uint64_t i = 0; i < (uint64_t)gx * bx && i < count; ++i) y[i] = 1.0f / (1.0f + expf(-x[i]));
  if (wrong && *wrong) y[count / 2] += strtof(wrong, NULL);
  return next(9, __func__);
}
int cuCtxSynchronize(void) { return next(10, __func__); }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  memcpy(to, (const void *)from, bytes);
  return next(11, __func__);
}
int cuMemFree_v2(uint64_t address) { free((void *)address); return next(step == 12 ? 12 : 13, __func__); }
