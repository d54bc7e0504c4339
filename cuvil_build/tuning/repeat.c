/* Runs a kernel again and again. Weights may be others each time, so that they are not in a cache. */
#include <stdint.h>

typedef void cuvil_kernel(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end, void *scratch);

__attribute__((visibility("default"))) void cuvil_repeat(
    cuvil_kernel *kernel, void *const *const *sets, int64_t count, int64_t first, const int64_t *dims,
    int64_t chunks, void *scratch, int64_t times)
{
    int64_t set = first % count;
    for (int64_t n = 0; n < times; n++) {
        kernel(sets[set], dims, 0, chunks, scratch);
        set = set + 1 == count ? 0 : set + 1;
    }
}
