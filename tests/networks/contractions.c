/* A pool of one thread that times each kernel of a launch: once in its place, or again and again. And what the
   machine's multiply-adds are capable of, in the same ticks. */
#include "cuvil_rt.h"
#include "ticks.h"

#define EXPORT __attribute__((visibility("default")))
enum { ACCUMULATORS = 12, LANES = VECTOR_BYTES / 4 };
typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

typedef struct {
  const int32_t *jobs; /* how many run in the launch that begins with each call */
  int64_t *ticks;      /* `repeat` of each call */
  int32_t repeat;
} record;

static void time_launch(void *user, int32_t count, void (*task)(void *data, int32_t index), void *data) {
  (void)count, (void)task;
  record *to = user;
  cuvil_ctx *ctx = data;
  for (int32_t n = 0; n < to->jobs[ctx->first_call]; n++) {
    const cuvil_job *job = &ctx->jobs[n];
    int64_t *ticks = to->ticks + ((int64_t)ctx->first_call + n) * to->repeat;
    for (int32_t i = 0; i < to->repeat && job->chunks > 0; i++) {
      int64_t start = cuvil_ticks();
      job->kernel(job->buffers, job->dims, 0, job->chunks, ctx->scratch);
      ticks[i] = cuvil_ticks() - start;
    }
  }
  for (int32_t i = 0; i < ctx->shares; i++) ctx->share[i].next = ctx->share[i].end; /* all is done */
}

EXPORT void *time_launch_address(void) { return (void *)time_launch; }

EXPORT int64_t ticks_now(void) { return cuvil_ticks(); }

/* Operations of one `multiply_adds`, whose ticks it answers. */
EXPORT int64_t multiply_adds(int64_t rounds, int64_t *operations) {
  vector sums[ACCUMULATORS], factor, term;
  for (int lane = 0; lane < LANES; lane++) factor[lane] = 0.999f, term[lane] = 1e-3f;
  for (int n = 0; n < ACCUMULATORS; n++) sums[n] = factor + (float)n;
  __asm__ volatile("" ::: "memory");
  int64_t start = cuvil_ticks();
  for (int64_t i = 0; i < rounds; i++) {
#pragma clang loop unroll(full)
    for (int n = 0; n < ACCUMULATORS; n++) sums[n] = sums[n] * factor + term;
    __asm__ volatile("");
  }
  int64_t took = cuvil_ticks() - start;
  float kept = 0;
  for (int n = 0; n < ACCUMULATORS; n++) kept += sums[n][0];
  __asm__ volatile("" ::"m"(kept));
  *operations = rounds * ACCUMULATORS * LANES * 2;
  return took;
}
