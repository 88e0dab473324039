/* Stands in for libamdhip64.so and libtorch_hip.so where there is no AMD GPU: records what the runtime asks of them, and
 * refuses what HIP would: a module of another device than the current one, no such kernel, code for another GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct module { int device; char begin[8]; };
struct function { struct module *module; char name[64]; };

static __thread int current = 0;

const char *hipGetErrorName(int status) {
  switch (status) {
    case 101: return "hipErrorInvalidDevice";
    case 209: return "hipErrorNoBinaryForGpu";
    case 500: return "hipErrorNotFound";
    case 719: return "hipErrorLaunchFailure";
  }
  return NULL;
}
const char *hipGetErrorString(int status) {
  switch (status) {
    case 101: return "invalid device ordinal";
    case 209: return "no kernel image is available for execution on the device";
    case 500: return "named symbol not found";
    case 719: return "unspecified launch failure";
  }
  return NULL;
}
int hipGetDevice(int *device) { *device = current; return 0; }
int hipSetDevice(int device) {
  if (device < 0 || device > 3) return 101;
  current = device;
  printf("device %d\n", device);
  return 0;
}
int hipModuleLoadData(void **made, const void *image) {
  if (strncmp(image, "bad", 3) == 0) return 209;
  struct module *module = calloc(1, sizeof *module);
  module->device = current;
  memcpy(module->begin, image, 4);
  *made = module;
  printf("load on %d\n", current);
  return 0;
}
int hipModuleGetFunction(void **made, void *module, const char *name) {
  if (strcmp(name, "absent") == 0) return 500;
  struct function *function = calloc(1, sizeof *function);
  function->module = module;
  snprintf(function->name, sizeof function->name, "%s", name);
  *made = function;
  return 0;
}
int hipModuleLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **arguments, void **extra) {
  struct function *function = kernel;
  if (function->module->device != current) return 101;
  if (strcmp(function->name, "faulty") == 0) return 719;
  if (strcmp(function->name, "strange") == 0) return 12345;
  printf("launch %s on %d grid %u %u %u block %u %u %u shared %u stream %ld argument %lx extra %s\n", function->name,
         current, gx, gy, gz, bx, by, bz, shared, (long)stream, *(unsigned long *)arguments[0], extra ? "some" : "none");
  fflush(stdout);
  return 0;
}
int aoti_torch_get_current_cuda_stream(int device, void **stream) {
  if (device == 3) return 1;
  *stream = (void *)(long)(7 + device);
  return 0;
}
