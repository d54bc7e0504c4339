/* A host in C that calls a module again and again: no Python between its calls. */
#include <stdint.h>

typedef int (*run_function)(void *context, const void *inputs, void *outputs);

__attribute__((visibility("default"))) int cuvil_call_repeatedly(run_function run, void *context, const void *inputs,
                                                                 void *outputs, int64_t count);

int cuvil_call_repeatedly(run_function run, void *context, const void *inputs, void *outputs, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const int status = run(context, inputs, outputs);
    if (status) return status;
  }
  return 0;
}
