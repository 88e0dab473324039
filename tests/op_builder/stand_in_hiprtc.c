/* Stands in for libhiprtc.so where there is no ROCm: records the calls, and fails as the source's text asks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct program { char *source; int failed; };
static const char kCode[] = "\177ELF code object";

const char *hiprtcGetErrorString(int status) {
  switch (status) {
    case 2: return "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case 6: return "HIPRTC_ERROR_COMPILATION";
  }
  return "HIPRTC_ERROR_UNKNOWN";
}
int hiprtcCreateProgram(void **made, const char *source, const char *name, int headers, const char **texts,
                        const char **names) {
  if (strstr(source, "no program")) return 2;
  struct program *program = calloc(1, sizeof *program);
  program->source = strdup(source);
  *made = program;
  printf("create %s headers %d %s %s\n", name, headers, texts ? "texts" : "none", names ? "names" : "none");
  return 0;
}
int hiprtcCompileProgram(void *given, int count, const char **options) {
  struct program *program = given;
  for (int i = 0; i < count; ++i) printf("option %s\n", options[i]);
  printf("%s", strstr(program->source, "// kernels") ? strstr(program->source, "// kernels") : "");
  fflush(stdout);
  program->failed = strstr(program->source, "broken") != NULL || strstr(program->source, "silent") != NULL;
  return program->failed ? 6 : 0;
}
static const char *log_of(struct program *program) {
  if (strstr(program->source, "silent")) return "";
  return program->failed ? "scale.hip:3:1: error: unknown type name 'broken'\n" : "a warning\n";
}
int hiprtcGetProgramLogSize(void *program, size_t *size) {
  const size_t length = strlen(log_of(program));
  *size = length ? length + 1 : 0;
  return 0;
}
int hiprtcGetProgramLog(void *program, char *log) { strcpy(log, log_of(program)); return 0; }
int hiprtcGetCodeSize(void *program, size_t *size) {
  *size = sizeof kCode - 1;
  return strstr(((struct program *)program)->source, "lost") ? 11 : 0;
}
int hiprtcGetCode(void *program, char *code) { memcpy(code, kCode, sizeof kCode - 1); return 0; }
int hiprtcDestroyProgram(void **program) {
  free(*program);
  *program = NULL;
  puts("destroy");
  fflush(stdout);
  return 0;
}
