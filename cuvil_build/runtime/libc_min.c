/* The four functions that compilers call by themselves, where no C library is: WebAssembly and the static
   driver. Built with -fno-builtin, or the compiler would make each a call of itself. */
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

typedef uint64_t __attribute__((may_alias, aligned(1))) word;

void *memcpy(void *target, const void *source, size_t bytes);
void *memmove(void *target, const void *source, size_t bytes);
void *memset(void *target, int byte, size_t bytes);
int memcmp(const void *left, const void *right, size_t bytes);

void *memcpy(void *target, const void *source, size_t bytes) {
  uint8_t *to = target;
  const uint8_t *from = source;
  for (; bytes >= 8; bytes -= 8, to += 8, from += 8) *(word *)to = *(const word *)from;
  for (; bytes; bytes--) *to++ = *from++;
  return target;
}

void *memmove(void *target, const void *source, size_t bytes) {
  uint8_t *to = target;
  const uint8_t *from = source;
  if ((uintptr_t)to - (uintptr_t)from >= bytes) return memcpy(target, source, bytes);
  for (; bytes >= 8; bytes -= 8) *(word *)(to + bytes - 8) = *(const word *)(from + bytes - 8);
  for (; bytes; bytes--) to[bytes - 1] = from[bytes - 1];
  return target;
}

void *memset(void *target, int byte, size_t bytes) {
  uint8_t *to = target;
  uint64_t pattern = (uint8_t)byte * UINT64_C(0x0101010101010101);
  for (; bytes >= 8; bytes -= 8, to += 8) *(word *)to = pattern;
  for (; bytes; bytes--) *to++ = (uint8_t)byte;
  return target;
}

int memcmp(const void *left, const void *right, size_t bytes) {
  const uint8_t *a = left;
  const uint8_t *b = right;
  for (; bytes; bytes--, a++, b++)
    if (*a != *b) return *a < *b ? -1 : 1;
  return 0;
}
