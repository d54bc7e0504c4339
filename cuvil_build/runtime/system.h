/* The whole import list of a module. What the system offers is weak: where it is absent, a module runs
   on the caller's thread in the caller's memory. */
#ifndef CUVIL_SYSTEM_H_
#define CUVIL_SYSTEM_H_

#include <stddef.h>
#include <stdint.h>

void *memcpy(void *target, const void *source, size_t bytes);
void *memmove(void *target, const void *source, size_t bytes);
void *memset(void *target, int byte, size_t bytes);
int memcmp(const void *left, const void *right, size_t bytes);

#if defined(__linux__)

#define CUVIL_SYSTEM 1
#define CUVIL_WEAK __attribute__((weak))

CUVIL_WEAK int pthread_create(unsigned long *thread, const void *attributes, void *(*start)(void *), void *argument);
CUVIL_WEAK int pthread_join(unsigned long thread, void **result);
CUVIL_WEAK void *mmap(void *address, size_t bytes, int protection, int flags, int file, long offset);
CUVIL_WEAK int munmap(void *address, size_t bytes);
CUVIL_WEAK int open(const char *path, int flags, ...);
CUVIL_WEAK int close(int file);
CUVIL_WEAK long syscall(long number, ...);

enum {
  CUVIL_PROT_READ = 1,
  CUVIL_PROT_WRITE = 2,
  CUVIL_MAP_PRIVATE = 2,
  CUVIL_MAP_ANONYMOUS = 0x20,
  CUVIL_MAP_NORESERVE = 0x4000,
  CUVIL_O_RDONLY_CLOEXEC = 02000000,
  CUVIL_SEEK_END = 2,
  CUVIL_CLOCK_MONOTONIC = 1,
  CUVIL_MADV_HUGEPAGE = 14,
  CUVIL_FUTEX_WAIT_PRIVATE = 128,
  CUVIL_FUTEX_WAKE_PRIVATE = 129
};

#if defined(__x86_64__)
enum { CUVIL_SYS_LSEEK = 8, CUVIL_SYS_MADVISE = 28, CUVIL_SYS_FUTEX = 202 };
enum { CUVIL_SYS_CLOCK_GETTIME = 228, CUVIL_SYS_GETCPU = 309 };
#elif defined(__aarch64__) || (defined(__riscv) && __riscv_xlen == 64)
enum { CUVIL_SYS_LSEEK = 62, CUVIL_SYS_MADVISE = 233, CUVIL_SYS_FUTEX = 98 };
enum { CUVIL_SYS_CLOCK_GETTIME = 113, CUVIL_SYS_GETCPU = 168 };
#else
#error "system call numbers of this machine are not known"
#endif

#else
#define CUVIL_SYSTEM 0
#endif

#endif
