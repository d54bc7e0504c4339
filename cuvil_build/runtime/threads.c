/* Threads take chunks of all running calls from one shared counter; which thread computes a chunk never changes
   its result. The threads are a host's, or workers of our own. */
#include <stdatomic.h>

#include "cuvil_rt.h"
#include "system.h"

/* Scalar operations that make one grab from the counter worth its cost, a few microseconds. */
enum { GRAB_WORK = 32768 };
/* Less than this is done by the caller alone: waking a thread costs more. */
enum { PARALLEL_WORK = 4 * GRAB_WORK };
/* No more grabs per thread than this, however many chunks there are. */
enum { GRABS_PER_THREAD = 8 };

static void run_job(cuvil_ctx *ctx, const cuvil_job *job, int64_t begin, int64_t end, void *scratch) {
  if (ctx->profile)
    CUVIL_RT(timed_kernel)(ctx, job, begin, end, scratch);
  else
    job->kernel(job->buffers, job->dims, begin, end, scratch);
}

static void run_here(cuvil_ctx *ctx, uint32_t count) {
  for (const cuvil_job *job = ctx->jobs; count; job++, count--)
    if (job->chunks > 0) run_job(ctx, job, 0, job->chunks, ctx->scratch);
}

/* A task of the pool: `index` is that of its scratch memory. */
static void take_chunks(void *data, int32_t index) {
  cuvil_ctx *ctx = data;
  void *scratch = ctx->scratch + (size_t)index * ctx->scratch_stride;
  for (;;) {
    int64_t grab = __atomic_fetch_add(&ctx->next, 1, __ATOMIC_RELAXED);
    if (grab >= ctx->grabs) return;
    const cuvil_job *job = ctx->jobs;
    for (; grab >= job->grabs; job++) grab -= job->grabs;
    int64_t begin = grab * job->grab;
    run_job(ctx, job, begin, cuvil_min(begin + job->grab, job->chunks), scratch);
  }
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
  cuvil_job *jobs = ctx->jobs;
  int64_t all = 0;
  for (uint32_t i = 0; ctx->pool && i < count; i++)
    all = cuvil_add(all, cuvil_mul(cuvil_max(jobs[i].chunks, 0), cuvil_max(jobs[i].work, 1)));
  int64_t grabs = all < PARALLEL_WORK ? 1 : cut(jobs, count, all / ((int64_t)ctx->threads * GRABS_PER_THREAD));
  if (grabs <= 1) {
    run_here(ctx, count);
    return;
  }
  ctx->grabs = grabs;
  __atomic_store_n(&ctx->next, 0, __ATOMIC_RELAXED);
  ctx->pool->parallel_for(ctx->pool->user, (int32_t)cuvil_min(ctx->threads, grabs), take_chunks, ctx);
  take_chunks(ctx, 0); /* what is left where a host called nobody */
}

#if CUVIL_SYSTEM

/* How long a worker waits for the next launch before it sleeps: kernels follow each other faster than the system
   wakes a sleeper, and no more, since another process may want the core. */
enum { WORKER_SPINS_US = 100 };
/* How long a caller waits for the last worker: one that takes longer may have lost its core to another process,
   and gets the caller's when that sleeps. */
enum { CALLER_SPINS_US = 50 };
/* Looks between two looks at the clock. */
enum { LOOKS = 32 };

/* The gate lets workers into the current launch: how many are inside, how many more may come in, and whether the
   caller sleeps. A worker that wakes too late finds it shut, and nobody waits for it. */
enum { GATE_INSIDE = 0xff, GATE_PLACE = 0x100, GATE_PLACES = 0xff00, GATE_CALLER_SLEEPS = 0x10000 };

struct cuvil_workers {
  cuvil_pool pool;
  int32_t most; /* workers, and how many there are yet */
  int32_t count;
  size_t mapped; /* bytes to unmap, where it has memory of its own */
  _Atomic uint32_t busy;
  _Alignas(CUVIL_ALIGN) _Atomic uint32_t epoch; /* grows with every launch: what workers wait on */
  _Atomic uint32_t sleepers;
  _Atomic uint32_t stop;
  _Alignas(CUVIL_ALIGN) _Atomic uint32_t gate;
  /* What is to be done; constant while anybody is inside the gate. */
  _Alignas(CUVIL_ALIGN) void (*task)(void *data, int32_t index);
  void *data;
  unsigned long threads[];
};

static void pause_cpu(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Until the word is no longer `value` in the bits of the mask, or the time is over. */
static uint32_t spin_while(_Atomic uint32_t *word, uint32_t mask, uint32_t value, int64_t microseconds) {
  int64_t start = cuvil_ticks();
  int64_t limit = microseconds * cuvil_ticks_per_microsecond();
  for (int64_t rounds = 0;; rounds++) {
    for (int i = 0; i < LOOKS; i++) {
      uint32_t seen = atomic_load_explicit(word, memory_order_acquire);
      if ((seen & mask) != value) return seen;
      pause_cpu();
    }
    int64_t passed = CUVIL_HAS_TICKS ? cuvil_ticks() - start : rounds;
    if (passed >= limit || passed < 0) return value;
  }
}

static void sleep_while(_Atomic uint32_t *word, uint32_t value) {
  syscall(CUVIL_SYS_FUTEX, word, (long)CUVIL_FUTEX_WAIT_PRIVATE, (long)value, NULL, NULL, 0L);
}

static void wake(_Atomic uint32_t *word, int32_t count) {
  syscall(CUVIL_SYS_FUTEX, word, (long)CUVIL_FUTEX_WAKE_PRIVATE, (long)count, NULL, NULL, 0L);
}

/* ---- workers ---- */

/* The number of the task that this worker does, or 0: no place is left. */
static int32_t enter(cuvil_workers *workers) {
  uint32_t gate = atomic_load_explicit(&workers->gate, memory_order_relaxed);
  while (gate & GATE_PLACES)
    if (atomic_compare_exchange_weak_explicit(&workers->gate, &gate, gate - GATE_PLACE + 1, memory_order_acquire,
                                              memory_order_relaxed))
      return (int32_t)(gate & GATE_PLACES) / GATE_PLACE;
  return 0;
}

static void leave(cuvil_workers *workers) {
  uint32_t before = atomic_fetch_sub_explicit(&workers->gate, 1, memory_order_acq_rel);
  if (before - 1 == GATE_CALLER_SLEEPS) wake(&workers->gate, 1);
}

static uint32_t await_launch(cuvil_workers *workers, uint32_t seen) {
  for (;;) {
    uint32_t epoch = spin_while(&workers->epoch, UINT32_MAX, seen, WORKER_SPINS_US);
    if (epoch != seen) return epoch;
    atomic_fetch_add(&workers->sleepers, 1);
    sleep_while(&workers->epoch, seen);
    atomic_fetch_sub(&workers->sleepers, 1);
  }
}

static void *work(void *argument) {
  cuvil_workers *workers = argument;
  uint32_t seen = 0;
  for (;;) {
    seen = await_launch(workers, seen);
    if (atomic_load(&workers->stop)) return NULL;
    int32_t index = enter(workers);
    if (!index) continue;
    workers->task(workers->data, index);
    leave(workers);
  }
}

/* ---- their caller ---- */

static void start(cuvil_workers *workers, int32_t wanted) {
  while (workers->count < wanted && workers->count < workers->most) {
    if (pthread_create(&workers->threads[workers->count], NULL, work, workers) != 0) return;
    workers->count++;
  }
}

/* No worker comes in any more; waits for those inside. */
static void shut(cuvil_workers *workers) {
  uint32_t gate = atomic_fetch_and_explicit(&workers->gate, ~(uint32_t)GATE_PLACES, memory_order_acq_rel);
  while ((gate &= GATE_INSIDE)) {
    uint32_t now = spin_while(&workers->gate, GATE_INSIDE, gate, CALLER_SPINS_US);
    if (now == gate) break;
    gate = now;
  }
  if (!gate) return;
  gate = atomic_fetch_or_explicit(&workers->gate, GATE_CALLER_SLEEPS, memory_order_acq_rel) | GATE_CALLER_SLEEPS;
  while (gate & GATE_INSIDE) {
    sleep_while(&workers->gate, gate);
    gate = atomic_load_explicit(&workers->gate, memory_order_acquire);
  }
}

/* The parallel_for of our own workers. They serve one caller at a time: who comes meanwhile, from another thread
   or from a task, does its work itself. */
static void share(void *user, int32_t count, void (*task)(void *data, int32_t index), void *data) {
  cuvil_workers *workers = user;
  if (count < 2 || atomic_exchange_explicit(&workers->busy, 1, memory_order_acquire)) {
    if (count > 0) task(data, 0);
    return;
  }
  if (workers->count < count - 1) start(workers, count - 1);
  uint32_t places = (uint32_t)cuvil_min(count - 1, workers->count);
  workers->task = task;
  workers->data = data;
  atomic_store_explicit(&workers->gate, places * GATE_PLACE, memory_order_release);
  atomic_fetch_add(&workers->epoch, 1);
  uint32_t sleepers = atomic_load(&workers->sleepers);
  if (sleepers) wake(&workers->epoch, (int32_t)cuvil_min(sleepers, places));
  task(data, 0);
  shut(workers);
  atomic_store_explicit(&workers->busy, 0, memory_order_release);
}

size_t CUVIL_RT(workers_bytes)(int32_t threads) {
  return threads > 1 ? sizeof(cuvil_workers) + (size_t)(threads - 1) * sizeof(unsigned long) : 0;
}

/* They start when they are first needed. */
cuvil_workers *CUVIL_RT(workers_make)(void *memory, int32_t threads) {
  if (!pthread_create || !pthread_join || !syscall) return NULL;
  cuvil_workers *workers = memory;
  memset(workers, 0, CUVIL_RT(workers_bytes)(threads));
  workers->most = threads - 1;
  workers->pool.size = sizeof(cuvil_pool);
  workers->pool.parallel_for = share;
  workers->pool.user = workers;
  return workers;
}

const cuvil_pool *CUVIL_RT(workers_pool)(cuvil_workers *workers) { return workers ? &workers->pool : NULL; }

void CUVIL_RT(workers_stop)(cuvil_workers *workers) {
  atomic_store(&workers->stop, 1);
  atomic_fetch_add(&workers->epoch, 1);
  wake(&workers->epoch, CUVIL_MAX_THREADS);
  for (int32_t i = 0; i < workers->count; i++) pthread_join(workers->threads[i], NULL);
}

int CUVIL_RT(pool_open)(cuvil_pool **pool) {
  size_t bytes = CUVIL_RT(workers_bytes)(CUVIL_MAX_THREADS);
  *pool = NULL;
  if (!mmap || !munmap) return CUVIL_BAD_CALL;
  void *memory = mmap(NULL, bytes, CUVIL_PROT_READ | CUVIL_PROT_WRITE, CUVIL_MAP_PRIVATE | CUVIL_MAP_ANONYMOUS, -1, 0);
  if ((intptr_t)memory == -1) return CUVIL_NO_MEMORY;
  cuvil_workers *workers = CUVIL_RT(workers_make)(memory, CUVIL_MAX_THREADS);
  if (!workers) {
    munmap(memory, bytes);
    return CUVIL_BAD_CALL;
  }
  workers->mapped = bytes;
  *pool = &workers->pool;
  return CUVIL_OK;
}

void CUVIL_RT(pool_close)(cuvil_pool *pool) {
  if (!pool) return;
  cuvil_workers *workers = pool->user;
  CUVIL_RT(workers_stop)(workers);
  munmap(workers, workers->mapped);
}

#else

size_t CUVIL_RT(workers_bytes)(int32_t threads) {
  (void)threads;
  return 0;
}

cuvil_workers *CUVIL_RT(workers_make)(void *memory, int32_t threads) {
  (void)memory, (void)threads;
  return NULL;
}

const cuvil_pool *CUVIL_RT(workers_pool)(cuvil_workers *workers) {
  (void)workers;
  return NULL;
}

void CUVIL_RT(workers_stop)(cuvil_workers *workers) { (void)workers; }

int CUVIL_RT(pool_open)(cuvil_pool **pool) {
  *pool = NULL;
  return CUVIL_BAD_CALL;
}

void CUVIL_RT(pool_close)(cuvil_pool *pool) { (void)pool; }

#endif
