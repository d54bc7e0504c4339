/* What a host lends to modules: the same in the header of every model. */
#ifndef CUVIL_HOST_H_
#define CUVIL_HOST_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Threads for one module or for several: the host's own, or those of <model>_pool_open. */
typedef struct cuvil_pool {
  size_t size; /* sizeof(cuvil_pool); later versions append members */
  /* Calls task(data, i) for numbers 0 <= i < count, each at most once, at the same time on whatever threads are
     free, the caller's among them, and returns when all these calls have returned. Some numbers may be left out:
     tasks share their work among those that are called. */
  void (*parallel_for)(void *user, int32_t count, void (*task)(void *data, int32_t index), void *data);
  void *user;
} cuvil_pool;

/* What one call of a kernel took, in ticks, summed over runs. */
typedef struct cuvil_call_time {
  int64_t wall; /* until all threads were done; of calls that run at the same time, the first has it */
  int64_t busy; /* inside the kernel, over all threads */
  int64_t runs;
} cuvil_call_time;

typedef struct cuvil_profile {
  size_t size; /* sizeof(cuvil_profile); later versions append members */
  /* Ticks of any length, from any thread; NULL: the machine's own counter. */
  int64_t (*clock)(void *user);
  void *user;
  cuvil_call_time *calls; /* <MODEL>_CALLS of them, in the module's order */
  int64_t ticks;          /* of whole runs */
  int64_t nanoseconds;    /* the same by the system's clock; 0 where there is none */
} cuvil_profile;

#ifdef __cplusplus
}
#endif

#endif
