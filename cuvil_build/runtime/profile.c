/* What calls of kernels take, where the host asks for it; nothing of this runs otherwise. */
#include "cuvil_rt.h"
#include "system.h"

int64_t CUVIL_RT(ticks)(const cuvil_ctx *ctx) {
  const cuvil_profile *profile = ctx->profile;
  return profile->clock ? profile->clock(profile->user) : cuvil_ticks();
}

static int64_t nanoseconds(void) {
#if CUVIL_SYSTEM
  int64_t now[2] = {0, 0};
  if (syscall) syscall(CUVIL_SYS_CLOCK_GETTIME, (long)CUVIL_CLOCK_MONOTONIC, now);
  return now[0] * 1000000000 + now[1];
#else
  return 0;
#endif
}

int CUVIL_RT(profile)(cuvil_ctx *ctx, cuvil_profile *profile) {
  if (!ctx) return CUVIL_BAD_CALL;
  if (profile && profile->size < sizeof *profile)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_CALL, "the profile's size is %d, expected %d", (int64_t)profile->size,
                          (int64_t)sizeof *profile);
  if (profile && !profile->clock && !CUVIL_HAS_TICKS)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_CALL, "this machine has no counter: the profile needs a clock");
  ctx->profile = profile;
  return CUVIL_OK;
}

int CUVIL_RT(timed_run)(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out) {
  cuvil_profile *profile = ctx->profile;
  int64_t began = nanoseconds();
  int64_t start = CUVIL_RT(ticks)(ctx);
  int status = CUVIL_RT(run_once)(ctx, in, out);
  profile->ticks += CUVIL_RT(ticks)(ctx) - start;
  profile->nanoseconds += nanoseconds() - began;
  return status;
}

void CUVIL_RT(timed_launch)(cuvil_ctx *ctx, uint32_t first, uint32_t count) {
  ctx->first_call = first;
  int64_t start = CUVIL_RT(ticks)(ctx);
  CUVIL_RT(parallel)(ctx, count);
  ctx->profile->calls[first].wall += CUVIL_RT(ticks)(ctx) - start;
  for (uint32_t i = 0; i < count; i++) ctx->profile->calls[first + i].runs++;
}

void CUVIL_RT(timed_kernel)(cuvil_ctx *ctx, const cuvil_job *job, int64_t begin, int64_t end, void *scratch) {
  int64_t start = CUVIL_RT(ticks)(ctx);
  job->kernel(job->buffers, job->dims, begin, end, scratch);
  int64_t took = CUVIL_RT(ticks)(ctx) - start;
  __atomic_fetch_add(&ctx->profile->calls[ctx->first_call + (uint32_t)(job - ctx->jobs)].busy, took, __ATOMIC_RELAXED);
}
