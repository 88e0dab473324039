/* Stands in for libcuda.so.1 and libtorch_cuda.so where there is no GPU: records what the runtime asks of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *current = NULL;

int cuInit(unsigned flags) { return (int)flags; }
/* NVRTC asks a driver that is installed for tables of its own, and calls them unless they are refused. */
int cuGetExportTable(const void **table, const void *id) { *table = NULL; return 500; }
int cuDriverGetVersion(int *version) {
  const char *asked = getenv("STAND_IN_DRIVER");
  *version = asked ? atoi(asked) : 12000;
  return 0;
}
int cuGetErrorName(int status, const char **name) {
  *name = status == 218 ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_NOT_FOUND";
  return 0;
}
int cuGetErrorString(int status, const char **text) {
  *text = status == 218 ? "a PTX JIT compilation failed" : "named symbol not found";
  return 0;
}
int cuLibraryLoadData(void **library, const void *image, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
  if (strncmp(image, "bad", 3) == 0) return 218;
  *library = strdup(image);
  return 0;
}
int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  if (strcmp(name, "absent") == 0) return 500;
  *kernel = strdup(name);
  return 0;
}
int cuKernelGetFunction(void **function, void *kernel) { *function = kernel; return 0; }
int cuFuncLoad(void *function) { printf("load %s\n", (const char *)function); fflush(stdout); return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = device == 2;
  return 0;
}
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxPushCurrent_v2(void *context) { current = context; printf("push %ld\n", (long)context); return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = NULL; printf("pop\n"); return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(long)(100 + device); return 0; }
int cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
  printf("attribute %d %d device %d\n", attribute, value, device);
  return 0;
}
int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  printf("launch %s grid %u %u %u block %u %u %u shared %u stream %ld arguments %ld", (const char *)kernel, gx, gy, gz,
         bx, by, bz, shared, (long)stream, *(long *)arguments[0]);
  if (strncmp((const char *)kernel, "one_", 4) == 0) {
    printf("\n");
  } else {
    printf(" %g\n", *(float *)arguments[1]);
  }
  fflush(stdout);
  return 0;
}
int aoti_torch_get_current_cuda_stream(int device, void **stream) { *stream = (void *)(long)(7 + device); return 0; }
