/* The thread pool: workers take chunks of all running calls from one shared counter; which thread computes a
   chunk never changes its result. */
#include <stdatomic.h>

#include "cuvil_rt.h"
#include "system.h"

/* Scalar operations that make one grab from the counter worth its cost, a few microseconds. */
enum { GRAB_WORK = 32768 };
/* Less than this is done by the caller alone: waking a thread costs more. */
enum { PARALLEL_WORK = 4 * GRAB_WORK };
/* No more grabs per thread than this, however many chunks there are. */
enum { GRABS_PER_THREAD = 8 };

static void run_here(const cuvil_ctx *ctx, uint32_t count) {
  for (const cuvil_job *job = ctx->jobs; count; job++, count--)
    if (job->chunks > 0) job->kernel(job->buffers, job->dims, 0, job->chunks, ctx->scratch);
}

#if CUVIL_SYSTEM

/* Pauses before a thread sleeps: some tens of microseconds, since layers follow each other faster than the
   kernel wakes a sleeper, and no more, since another process may want the core. */
enum { SPINS = 1000 };

/* The gate lets workers into the current launch: open flag, "caller sleeps" flag, number of workers inside.
   A worker that wakes too late finds it shut, and nobody waits for it. */
enum { GATE_OPEN = 0x10000, GATE_CALLER_SLEEPS = 0x20000, GATE_INSIDE = 0xffff };

typedef struct {
  cuvil_pool *pool;
  unsigned long thread;
  int32_t index;
} worker;

struct cuvil_pool {
  _Alignas(CUVIL_ALIGN) _Atomic uint32_t epoch; /* grows with every launch: what workers wait on */
  _Atomic uint32_t sleepers;
  _Atomic uint32_t stop;
  _Alignas(CUVIL_ALIGN) _Atomic uint32_t gate;
  _Alignas(CUVIL_ALIGN) _Atomic int64_t next;
  /* What is to be done; constant while anybody is inside the gate. */
  _Alignas(CUVIL_ALIGN) const cuvil_job *jobs;
  int64_t grabs; /* of all of them */
  uint8_t *scratch;
  size_t scratch_stride;
  int32_t worker_count;
  worker workers[];
};

static void pause_cpu(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void sleep_while(_Atomic uint32_t *word, uint32_t value) {
  syscall(CUVIL_SYS_FUTEX, word, (long)CUVIL_FUTEX_WAIT_PRIVATE, (long)value, NULL, NULL, 0L);
}

static void wake(_Atomic uint32_t *word, int32_t count) {
  syscall(CUVIL_SYS_FUTEX, word, (long)CUVIL_FUTEX_WAKE_PRIVATE, (long)count, NULL, NULL, 0L);
}

static void take_chunks(cuvil_pool *pool, int32_t index) {
  void *scratch = pool->scratch + (size_t)index * pool->scratch_stride;
  for (;;) {
    int64_t grab = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
    if (grab >= pool->grabs) return;
    const cuvil_job *job = pool->jobs;
    for (; grab >= job->grabs; job++) grab -= job->grabs;
    int64_t begin = grab * job->grab;
    job->kernel(job->buffers, job->dims, begin, cuvil_min(begin + job->grab, job->chunks), scratch);
  }
}

static int enter(cuvil_pool *pool) {
  uint32_t gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
  while (gate & GATE_OPEN)
    if (atomic_compare_exchange_weak_explicit(&pool->gate, &gate, gate + 1, memory_order_acquire, memory_order_relaxed))
      return 1;
  return 0;
}

static void leave(cuvil_pool *pool) {
  uint32_t before = atomic_fetch_sub_explicit(&pool->gate, 1, memory_order_acq_rel);
  if (before - 1 == GATE_CALLER_SLEEPS) wake(&pool->gate, 1);
}

static uint32_t await_launch(cuvil_pool *pool, uint32_t seen) {
  for (;;) {
    for (int i = 0; i < SPINS; i++) {
      uint32_t epoch = atomic_load_explicit(&pool->epoch, memory_order_acquire);
      if (epoch != seen) return epoch;
      pause_cpu();
    }
    atomic_fetch_add(&pool->sleepers, 1);
    sleep_while(&pool->epoch, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
  }
}

static void *work(void *argument) {
  worker *self = argument;
  cuvil_pool *pool = self->pool;
  uint32_t seen = 0;
  for (;;) {
    seen = await_launch(pool, seen);
    if (atomic_load(&pool->stop)) return NULL;
    if (!enter(pool)) continue;
    take_chunks(pool, self->index);
    leave(pool);
  }
}

static void shut(cuvil_pool *pool) {
  uint32_t gate = atomic_fetch_and_explicit(&pool->gate, ~(uint32_t)GATE_OPEN, memory_order_acq_rel);
  for (int i = 0; i < SPINS; i++) {
    gate = atomic_load_explicit(&pool->gate, memory_order_acquire);
    if (!(gate & GATE_INSIDE)) return;
    pause_cpu();
  }
  gate = atomic_fetch_or_explicit(&pool->gate, GATE_CALLER_SLEEPS, memory_order_acq_rel) | GATE_CALLER_SLEEPS;
  while (gate & GATE_INSIDE) {
    sleep_while(&pool->gate, gate);
    gate = atomic_load_explicit(&pool->gate, memory_order_acquire);
  }
}

size_t CUVIL_RT(pool_bytes)(int32_t threads) {
  return threads > 1 ? sizeof(cuvil_pool) + (size_t)(threads - 1) * sizeof(worker) : 0;
}

cuvil_pool *CUVIL_RT(pool_start)(void *memory, int32_t threads) {
  if (!pthread_create || !pthread_join || !syscall) return NULL;
  cuvil_pool *pool = memory;
  memset(pool, 0, CUVIL_RT(pool_bytes)(threads));
  for (int32_t i = 0; i < threads - 1; i++) {
    worker *self = &pool->workers[i];
    self->pool = pool;
    self->index = i + 1;
    if (pthread_create(&self->thread, NULL, work, self) != 0) break;
    pool->worker_count++;
  }
  return pool->worker_count ? pool : NULL;
}

void CUVIL_RT(pool_stop)(cuvil_pool *pool) {
  atomic_store(&pool->stop, 1);
  atomic_fetch_add(&pool->epoch, 1);
  wake(&pool->epoch, CUVIL_MAX_THREADS);
  for (int32_t i = 0; i < pool->worker_count; i++) pthread_join(pool->workers[i].thread, NULL);
}

static void share(cuvil_pool *pool) {
  atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
  atomic_store_explicit(&pool->gate, GATE_OPEN, memory_order_release);
  atomic_fetch_add(&pool->epoch, 1);
  uint32_t sleepers = atomic_load(&pool->sleepers);
  if (sleepers) wake(&pool->epoch, (int32_t)cuvil_min(sleepers, pool->grabs - 1));
  take_chunks(pool, 0);
  shut(pool);
}

/* Cuts every job into grabs of about so much work; answers how many there are. */
static int64_t cut(cuvil_job *jobs, uint32_t count, int64_t per_grab) {
  int64_t grabs = 0;
  for (cuvil_job *job = jobs; count; job++, count--) {
    int64_t per_chunk = cuvil_max(job->work, 1);
    job->grab = cuvil_max(per_grab / per_chunk, (GRAB_WORK + per_chunk - 1) / per_chunk);
    job->grabs = job->chunks > 0 ? (job->chunks - 1) / job->grab + 1 : 0;
    grabs += job->grabs;
  }
  return grabs;
}

void CUVIL_RT(parallel)(cuvil_ctx *ctx, uint32_t count) {
  cuvil_pool *pool = ctx->pool;
  cuvil_job *jobs = ctx->jobs;
  int64_t all = 0;
  for (uint32_t i = 0; pool && i < count; i++)
    all = cuvil_add(all, cuvil_mul(cuvil_max(jobs[i].chunks, 0), cuvil_max(jobs[i].work, 1)));
  int64_t grabs = all < PARALLEL_WORK ? 1 : cut(jobs, count, all / ((int64_t)ctx->threads * GRABS_PER_THREAD));
  if (grabs == 1) {
    run_here(ctx, count);
    return;
  }
  pool->jobs = jobs;
  pool->grabs = grabs;
  pool->scratch = ctx->scratch;
  pool->scratch_stride = ctx->scratch_stride;
  share(pool);
}

#else

size_t CUVIL_RT(pool_bytes)(int32_t threads) {
  (void)threads;
  return 0;
}

cuvil_pool *CUVIL_RT(pool_start)(void *memory, int32_t threads) {
  (void)memory, (void)threads;
  return NULL;
}

void CUVIL_RT(pool_stop)(cuvil_pool *pool) { (void)pool; }

void CUVIL_RT(parallel)(cuvil_ctx *ctx, uint32_t count) { run_here(ctx, count); }

#endif
