/* A counter that the machine has of its own: no call, no system. */
#ifndef CUVIL_TICKS_H_
#define CUVIL_TICKS_H_

#include <stdint.h>

#if defined(__x86_64__)

#define CUVIL_HAS_TICKS 1

static inline int64_t cuvil_ticks(void) { return (int64_t)__builtin_ia32_rdtsc(); }

/* About: nobody says how fast it counts, and waiting does not need to know. */
static inline int64_t cuvil_ticks_per_microsecond(void) { return 2500; }

#elif defined(__aarch64__)

#define CUVIL_HAS_TICKS 1

static inline int64_t cuvil_ticks(void) {
  uint64_t count;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
  return (int64_t)count;
}

static inline int64_t cuvil_ticks_per_microsecond(void) {
  uint64_t per_second;
  __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(per_second));
  return (int64_t)(per_second / 1000000u) + 1;
}

#else

#define CUVIL_HAS_TICKS 0

static inline int64_t cuvil_ticks(void) { return 0; }
static inline int64_t cuvil_ticks_per_microsecond(void) { return 1; }

#endif

#endif
