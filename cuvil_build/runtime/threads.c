/* Threads share the chunks of all running calls; which thread computes a chunk never changes its result. The
   threads are a host's, or workers of our own. Each has a part of its own, the same one in every run, since what
   it wrote and the weights that it used last are in its caches; who is done helps the others. */
#include <stdatomic.h>

#include "cuvil_rt.h"
#include "system.h"

/* Scalar operations that make one grab from the counter worth its cost, a few microseconds. */
enum { GRAB_WORK = 32768 };
/* Less than this is done by the caller alone: to share it costs 2 microseconds, and the half of this takes as long. */
enum { PARALLEL_WORK = 8 * GRAB_WORK };
/* No more grabs per thread than this, however many chunks there are. */
enum { GRABS_PER_THREAD = 32 };
/* A thread takes several grabs at once while much is left of a share: no more than this part of the share, and no more
   than this part of what is left of it, so that at its end nobody waits long for the last one. */
enum { PART_OF_SHARE = 8, PART_OF_REST = 4 };

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

static void run_grabs(cuvil_ctx *ctx, int64_t first, int64_t count, void *scratch) {
  const cuvil_job *job = ctx->jobs;
  for (; first >= job->grabs; job++) first -= job->grabs;
  for (; count; job++, first = 0) {
    int64_t own = cuvil_min(count, job->grabs - first);
    if (own > 0) run_job(ctx, job, first * job->grab, cuvil_min((first + own) * job->grab, job->chunks), scratch);
    count -= own;
  }
}

/* Takes some of what is left of a share; answers how many, from `first` on. */
static int64_t take(cuvil_share *share, int64_t *first) {
  int64_t next = __atomic_load_n(&share->next, __ATOMIC_RELAXED), count;
  do {
    int64_t left = share->end - next;
    if (left <= 0) return 0;
    count = cuvil_max(cuvil_min(left / PART_OF_REST, share->most), 1);
  } while (!__atomic_compare_exchange_n(&share->next, &next, next + count, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  *first = next;
  return count;
}

/* A task of the pool: `index` is that of its scratch memory and of its part. */
static void take_chunks(void *data, int32_t index) {
  cuvil_ctx *ctx = data;
  void *scratch = ctx->scratch + (size_t)index * ctx->scratch_stride;
  for (int32_t i = 0, at = index; i < ctx->shares; i++, at = at + 1 < ctx->shares ? at + 1 : 0)
    for (int64_t first, count; (count = take(&ctx->share[at], &first));) run_grabs(ctx, first, count, scratch);
}

/* Who begins with which grabs: each with a row of neighbours. */
static void deal(cuvil_ctx *ctx, int64_t grabs) {
  ctx->shares = (int32_t)cuvil_min(ctx->threads, grabs);
  for (int32_t i = 0; i < ctx->shares; i++) {
    cuvil_share *share = &ctx->share[i];
    share->end = grabs * (i + 1) / ctx->shares;
    share->most = grabs / ctx->shares / PART_OF_SHARE;
    __atomic_store_n(&share->next, grabs * i / ctx->shares, __ATOMIC_RELAXED);
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
  deal(ctx, grabs);
  ctx->pool->parallel_for(ctx->pool->user, ctx->shares, take_chunks, ctx);
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
/* A worker that loses its core in the middle of a chunk keeps its caller waiting for longer than the work takes.
   Then the caller works alone for so many times what it waited, before it tries again. */
enum { ALONE_FACTOR = 20 };
/* So long, too, where the system wakes the only worker on the core of its caller, since no other one is free. */
enum { ALONE_US = 10000 };

/* The gate lets workers into a launch: how many are inside, below which number they must be, whether the caller
   sleeps, and the last bits of the launch's epoch. A worker that wakes too late finds it shut, and nobody waits
   for it. */
enum {
  GATE_INSIDE = 0xff,
  GATE_LIMIT_ONE = 0x100,
  GATE_LIMIT = 0xff00,
  GATE_CALLER_SLEEPS = 0x10000,
  GATE_EPOCH_SHIFT = 17
};

typedef struct {
  cuvil_workers *workers;
  unsigned long thread;
  int32_t number; /* from 1: the caller is 0 */
} worker;

struct cuvil_workers {
  cuvil_pool pool;
  int32_t most; /* workers, and how many there are yet */
  _Atomic int32_t count;
  size_t mapped; /* bytes to unmap, where it has memory of its own */
  _Atomic int64_t alone; /* ticks at which workers are asked again */
  _Atomic uint32_t core; /* of the caller, when it last woke anybody */
  _Atomic uint32_t busy;
  _Alignas(CUVIL_ALIGN) _Atomic uint32_t epoch; /* grows with every launch: what workers wait on */
  _Atomic uint32_t sleepers;
  _Atomic uint32_t stop;
  _Alignas(CUVIL_ALIGN) _Atomic uint32_t gate;
  /* What is to be done; constant while anybody is inside the gate. */
  _Alignas(CUVIL_ALIGN) void (*task)(void *data, int32_t index);
  void *data;
  worker each[];
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

static uint32_t this_core(void) {
  uint32_t core = UINT32_MAX;
  syscall(CUVIL_SYS_GETCPU, &core, NULL, NULL);
  return core;
}

static void work_alone(cuvil_workers *workers, int64_t ticks) {
  if (!CUVIL_HAS_TICKS) return;
  atomic_store_explicit(&workers->alone, cuvil_ticks() + ticks, memory_order_relaxed);
}

/* ---- workers ---- */

static int enter(cuvil_workers *workers, uint32_t number, uint32_t epoch) {
  uint32_t gate = atomic_load_explicit(&workers->gate, memory_order_relaxed);
  while (number < (gate & GATE_LIMIT) / GATE_LIMIT_ONE && !((gate >> GATE_EPOCH_SHIFT ^ epoch) << GATE_EPOCH_SHIFT))
    if (atomic_compare_exchange_weak_explicit(&workers->gate, &gate, gate + 1, memory_order_acquire,
                                              memory_order_relaxed))
      return 1;
  return 0;
}

static void leave(cuvil_workers *workers) {
  uint32_t before = atomic_fetch_sub_explicit(&workers->gate, 1, memory_order_acq_rel);
  if ((before & GATE_CALLER_SLEEPS) && (before & GATE_INSIDE) == 1) wake(&workers->gate, 1);
}

static uint32_t await_launch(cuvil_workers *workers, uint32_t seen) {
  uint32_t epoch = spin_while(&workers->epoch, UINT32_MAX, seen, WORKER_SPINS_US);
  while (epoch == seen) {
    atomic_fetch_add(&workers->sleepers, 1);
    sleep_while(&workers->epoch, seen);
    atomic_fetch_sub(&workers->sleepers, 1);
    epoch = atomic_load_explicit(&workers->epoch, memory_order_acquire);
    if (epoch == seen || atomic_load(&workers->stop) || this_core() != atomic_load(&workers->core)) continue;
    /* it would only take the caller's time: others may come, but not this one */
    if (workers->count == 1) work_alone(workers, ALONE_US * cuvil_ticks_per_microsecond());
    seen = epoch;
  }
  return epoch;
}

static void *work(void *argument) {
  worker *self = argument;
  cuvil_workers *workers = self->workers;
  uint32_t seen = 0;
  for (;;) {
    seen = await_launch(workers, seen);
    if (atomic_load(&workers->stop)) return NULL;
    if (!enter(workers, (uint32_t)self->number, seen)) continue;
    workers->task(workers->data, self->number);
    leave(workers);
  }
}

/* ---- their caller ---- */

static void start(cuvil_workers *workers, int32_t wanted) {
  while (workers->count < wanted && workers->count < workers->most) {
    worker *self = &workers->each[workers->count];
    self->workers = workers;
    self->number = workers->count + 1;
    if (pthread_create(&self->thread, NULL, work, self) != 0) return;
    workers->count++;
  }
}

/* No worker comes in any more; waits for those inside. */
static void shut(cuvil_workers *workers) {
  uint32_t gate = atomic_fetch_and_explicit(&workers->gate, ~(uint32_t)GATE_LIMIT, memory_order_acq_rel);
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

static void share_launch(cuvil_workers *workers, int32_t count, void (*task)(void *data, int32_t index), void *data) {
  int64_t began = cuvil_ticks();
  if (began < atomic_load_explicit(&workers->alone, memory_order_relaxed)) {
    task(data, 0);
    return;
  }
  if (workers->count < count - 1) start(workers, count - 1);
  uint32_t epoch = atomic_load_explicit(&workers->epoch, memory_order_relaxed) + 1;
  uint32_t limit = (uint32_t)cuvil_min(count, GATE_LIMIT / GATE_LIMIT_ONE);
  workers->task = task;
  workers->data = data;
  atomic_store_explicit(&workers->gate, epoch << GATE_EPOCH_SHIFT | limit * GATE_LIMIT_ONE, memory_order_release);
  atomic_store(&workers->epoch, epoch);
  if (atomic_load(&workers->sleepers)) {
    atomic_store(&workers->core, this_core());
    wake(&workers->epoch, CUVIL_MAX_THREADS);
  }
  task(data, 0);
  int64_t done = cuvil_ticks();
  shut(workers);
  int64_t waited = cuvil_ticks() - done;
  if (waited > done - began + 2 * CALLER_SPINS_US * cuvil_ticks_per_microsecond())
    work_alone(workers, ALONE_FACTOR * waited);
}

/* The parallel_for of our own workers. They serve one caller at a time: who comes meanwhile, from another thread
   or from a task, does its work itself. */
static void share(void *user, int32_t count, void (*task)(void *data, int32_t index), void *data) {
  cuvil_workers *workers = user;
  if (count < 2 || atomic_exchange_explicit(&workers->busy, 1, memory_order_acquire)) {
    if (count > 0) task(data, 0);
    return;
  }
  share_launch(workers, count, task, data);
  atomic_store_explicit(&workers->busy, 0, memory_order_release);
}

size_t CUVIL_RT(workers_bytes)(int32_t threads) {
  return threads > 1 ? sizeof(cuvil_workers) + (size_t)(threads - 1) * sizeof(worker) : 0;
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
  for (int32_t i = 0; i < workers->count; i++) pthread_join(workers->each[i].thread, NULL);
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
