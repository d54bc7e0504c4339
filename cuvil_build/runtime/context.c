/* Opening and closing: where a context and its memory live, and the checks that come before a first run. */
#include "cuvil_rt.h"
#include "system.h"

static const char NO_CONTEXT[] = "no context: the memory given or offered by the system does not hold one";

static cuvil_options read_options(const void *options) {
  cuvil_options own;
  memset(&own, 0, sizeof own);
  if (options) {
    size_t size = ((const cuvil_options *)options)->size;
    memcpy(&own, options, size < sizeof own ? size : sizeof own);
  }
  if (own.threads == 0) own.threads = 1;
  return own;
}

static int32_t usable_threads(int32_t threads) {
  return threads < 1 ? 1 : threads > CUVIL_MAX_THREADS ? CUVIL_MAX_THREADS : threads;
}

static void *take(uint8_t *base, size_t *used, size_t bytes) {
  void *place = base ? base + *used : NULL;
  *used += CUVIL_RT(align)(bytes);
  return place;
}

/* The context with its tables; `base` NULL only measures. */
static size_t lay_out_block(const cuvil_model *model, int32_t threads, uint8_t *base) {
  size_t used = 0;
  cuvil_ctx *ctx = take(base, &used, sizeof(cuvil_ctx));
  void *values = take(base, &used, model->value_count * sizeof(int64_t));
  void *dims = take(base, &used, model->max_job_dims * sizeof(int64_t));
  void *shapes = take(base, &used, model->shape_count * sizeof(int64_t));
  void *pointers = take(base, &used, model->buffer_count * sizeof(void *));
  void *arguments = take(base, &used, model->max_job_buffers * sizeof(void *));
  void *jobs = take(base, &used, model->max_jobs * sizeof(cuvil_job));
  void *heaps = take(base, &used, model->heap_count * sizeof(cuvil_heap));
  void *workers = take(base, &used, CUVIL_RT(workers_bytes)(threads));
  void *share = take(base, &used, threads > 1 ? (size_t)threads * sizeof(cuvil_share) : 0);
  if (!base) return used;
  memset(ctx, 0, sizeof *ctx);
  ctx->model = model;
  ctx->threads = 1;
  ctx->values = values;
  ctx->dims = dims;
  ctx->shapes = shapes;
  ctx->pointers = pointers;
  ctx->arguments = arguments;
  ctx->jobs = jobs;
  ctx->heaps = heaps;
  if (model->heap_count) memset(heaps, 0, model->heap_count * sizeof(cuvil_heap));
  ctx->share = share;
  ctx->workers = workers; /* only a place until find_threads */
  return used;
}

/* Arena, every output lent, scratch of every thread, for the largest dims; 0: no bound, or more than there
   are addresses. */
static size_t largest_work(const cuvil_model *model, int32_t threads) {
  if (model->arena_max < 0 || model->scratch_max < 0) return 0;
  int64_t bytes = cuvil_add(model->arena_max, cuvil_mul(threads, cuvil_add(model->scratch_max, CUVIL_ALIGN)));
  for (uint32_t i = 0; i < model->output_count; i++) {
    const cuvil_tensor *output = &model->outputs[i];
    if (output->way == CUVIL_OUTPUT_HEAP) continue;
    if (output->nbytes_max < 0) return 0;
    bytes = cuvil_add(bytes, cuvil_add(output->nbytes_max, CUVIL_ALIGN));
  }
  bytes = cuvil_add(bytes, 2 * CUVIL_ALIGN);
  return (uint64_t)bytes > SIZE_MAX / 2 ? 0 : CUVIL_RT(align)((size_t)bytes);
}

size_t CUVIL_RT(memory_bytes)(const cuvil_model *model, const void *options) {
  int32_t threads = usable_threads(read_options(options).threads);
  return CUVIL_ALIGN + lay_out_block(model, threads, NULL) + largest_work(model, threads);
}

static int check_options(cuvil_ctx *ctx, const cuvil_options *options) {
  if (options->threads < 0 || options->threads > CUVIL_MAX_THREADS)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_CALL, "threads is %d, allowed 0..%d", (int64_t)options->threads,
                          (int64_t)CUVIL_MAX_THREADS);
  if (options->pool && options->pool->size < sizeof(cuvil_pool))
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_CALL, "the pool's size is %d, expected %d", (int64_t)options->pool->size,
                          (int64_t)sizeof(cuvil_pool));
  if (options->pool && !options->pool->parallel_for)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_CALL, "the pool's parallel_for is NULL");
  return CUVIL_OK;
}

static int check_cpu(cuvil_ctx *ctx) {
  const cuvil_model *model = ctx->model;
  for (uint32_t i = 0; i < model->feature_count; i++)
    if (!CUVIL_RT(cpu_has)(model->features[i]))
      return CUVIL_RT(fail)(ctx, CUVIL_BAD_CPU, "this CPU (or its operating system) lacks '%s', which the module needs",
                            model->features[i]);
  return CUVIL_OK;
}

static int check_weights(cuvil_ctx *ctx, const char *what, size_t bytes) {
  const cuvil_model *model = ctx->model;
  if (bytes != model->weights_bytes)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_WEIGHTS, "%s: is %d bytes, expected %d: truncated, or of another module", what,
                          (int64_t)bytes, (int64_t)model->weights_bytes);
  if ((uintptr_t)ctx->weights % CUVIL_ALIGN)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_WEIGHTS, "%s: not aligned to %d bytes", what, (int64_t)CUVIL_ALIGN);
  if (memcmp(ctx->weights + model->weights_id_offset, model->weights_id, 32) != 0)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_WEIGHTS, "%s: weights of another module (the id differs)", what);
  return CUVIL_OK;
}

static void find_threads(cuvil_ctx *ctx, const cuvil_options *options) {
  int32_t threads = usable_threads(options->threads);
  void *place = ctx->workers;
  ctx->workers = NULL;
  if (threads == 1) return;
  ctx->pool = options->pool;
  if (!ctx->pool) {
    ctx->workers = CUVIL_RT(workers_make)(place, threads);
    ctx->pool = CUVIL_RT(workers_pool)(ctx->workers);
  }
  ctx->threads = ctx->pool ? threads : 1;
}

static int finish(cuvil_ctx *ctx, const cuvil_options *options, int status) {
  ctx->broken = status;
  if (status)
    ctx->workers = NULL;
  else
    find_threads(ctx, options);
  return status;
}

int CUVIL_RT(open_memory)(const cuvil_model *model, cuvil_ctx **out, const void *weights, size_t weights_bytes,
                          void *memory, size_t bytes, const void *options) {
  cuvil_options own = read_options(options);
  int32_t threads = usable_threads(own.threads);
  size_t block = lay_out_block(model, threads, NULL);
  size_t skipped = (0 - (uintptr_t)memory) % CUVIL_ALIGN;
  *out = NULL;
  if (!memory || bytes < skipped + block) return CUVIL_NO_MEMORY;
  uint8_t *base = (uint8_t *)memory + skipped;
  cuvil_ctx *ctx = *out = (cuvil_ctx *)(void *)base;
  lay_out_block(model, threads, base);
  if (!weights && model->embedded) {
    weights = model->embedded;
    weights_bytes = model->weights_bytes;
  }
  ctx->weights = weights;
  ctx->work_source = CUVIL_WORK_GIVEN;
  ctx->work = base + block;
  ctx->work_bytes = bytes - skipped - block;
  ctx->allocate = own.allocate;
  ctx->user = own.user;
  int status = check_options(ctx, &own);
  if (!status) status = check_cpu(ctx);
  if (!status && model->weights_bytes && !weights)
    status = CUVIL_RT(fail)(ctx, CUVIL_BAD_WEIGHTS, "weights is NULL; the module needs %d bytes of weights",
                            (int64_t)model->weights_bytes);
  if (!status && model->weights_bytes) status = check_weights(ctx, "weights in memory", weights_bytes);
  return finish(ctx, &own, status);
}

#if CUVIL_SYSTEM

/* `all` of it will be used: then the system may refuse at once what it can't give; else only a part is touched. */
static void *map_memory(size_t bytes, int all) {
  if (!mmap || !munmap) return NULL;
  void *memory = mmap(NULL, bytes, CUVIL_PROT_READ | CUVIL_PROT_WRITE,
                      CUVIL_MAP_PRIVATE | CUVIL_MAP_ANONYMOUS | (all ? 0 : CUVIL_MAP_NORESERVE), -1, 0);
  return (intptr_t)memory == -1 ? NULL : memory;
}

static int map_weights(cuvil_ctx *ctx, const char *path) {
  if (!path && ctx->model->embedded) {
    ctx->weights = ctx->model->embedded;
    return check_weights(ctx, "weights in the library", ctx->model->weights_bytes);
  }
  if (!path)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_WEIGHTS,
                          "weights path is NULL and no weights are embedded; the module needs %d bytes",
                          (int64_t)ctx->model->weights_bytes);
  if (!open || !close || !syscall) return CUVIL_RT(fail)(ctx, CUVIL_BAD_CALL, "this system has no files");
  int file = open(path, CUVIL_O_RDONLY_CLOEXEC);
  if (file < 0) return CUVIL_RT(fail)(ctx, CUVIL_BAD_WEIGHTS, "%s: cannot open the weights file", path);
  long bytes = syscall(CUVIL_SYS_LSEEK, (long)file, 0L, (long)CUVIL_SEEK_END);
  int wrong = bytes < 0 || (uint64_t)bytes != ctx->model->weights_bytes;
  void *memory = wrong ? NULL : mmap(NULL, (size_t)bytes, CUVIL_PROT_READ, CUVIL_MAP_PRIVATE, file, 0);
  close(file);
  if (wrong) return check_weights(ctx, path, bytes < 0 ? 0 : (size_t)bytes);
  if ((intptr_t)memory == -1) return CUVIL_RT(fail)(ctx, CUVIL_BAD_WEIGHTS, "%s: cannot map the weights file", path);
  ctx->weights = memory;
  ctx->weights_mapped = (size_t)bytes;
  return check_weights(ctx, path, (size_t)bytes);
}

int CUVIL_RT(open)(const cuvil_model *model, cuvil_ctx **out, const char *path, const void *options) {
  cuvil_options own = read_options(options);
  int32_t threads = usable_threads(own.threads);
  size_t block = lay_out_block(model, threads, NULL);
  size_t page_rounded = (block + 4095) & ~(size_t)4095; /* scratch and arena start on a page */
  size_t work = largest_work(model, threads);
  *out = NULL;
  /* Pages are reserved, not touched: a run uses only what its dims need. */
  size_t bytes = page_rounded + work;
  void *memory = map_memory(bytes, 0);
  if (!memory && work) {
    work = 0; /* the largest dims don't fit; runs with smaller ones may */
    bytes = page_rounded;
    memory = map_memory(bytes, 0);
  }
  if (!memory) return CUVIL_NO_MEMORY;
  cuvil_ctx *ctx = *out = memory;
  lay_out_block(model, threads, memory);
  ctx->block_mapped = bytes;
  ctx->work_source = CUVIL_WORK_GIVEN;
  ctx->work = (uint8_t *)memory + page_rounded;
  ctx->work_bytes = work;
  ctx->allocate = own.allocate;
  ctx->user = own.user;
  if (work >= ((size_t)4 << 20) && syscall) syscall(CUVIL_SYS_MADVISE, memory, bytes, (long)CUVIL_MADV_HUGEPAGE);
  int status = check_options(ctx, &own);
  if (!status) status = check_cpu(ctx);
  if (!status && model->weights_bytes) status = map_weights(ctx, path);
  return finish(ctx, &own, status);
}

static void unmap(void *memory, size_t bytes) { munmap(memory, bytes); }

#else

int CUVIL_RT(open)(const cuvil_model *model, cuvil_ctx **out, const char *path, const void *options) {
  (void)model, (void)path, (void)options;
  *out = NULL; /* no files here: open_memory */
  return CUVIL_BAD_CALL;
}

#if defined(__wasm__)
static void *map_memory(size_t bytes, int all) {
  (void)all;
  size_t page = __builtin_wasm_memory_grow(0, (bytes + 65535) / 65536);
  return page == (size_t)-1 ? NULL : (void *)(page * 65536);
}
#else
static void *map_memory(size_t bytes, int all) {
  (void)bytes, (void)all;
  return NULL;
}
#endif

static void unmap(void *memory, size_t bytes) { (void)memory, (void)bytes; }

#endif

static void release_work(cuvil_ctx *ctx) {
  if (ctx->work_source == CUVIL_WORK_MAPPED) unmap(ctx->work_memory, ctx->work_memory_bytes);
  if (ctx->work_source == CUVIL_WORK_ALLOCATED) ctx->allocate(ctx->user, ctx->work_memory, 0);
  ctx->work_source = CUVIL_WORK_GIVEN;
  ctx->work = NULL;
  ctx->work_bytes = 0;
}

/* At least `bytes` of work memory; what was in it is lost when it grows. */
int CUVIL_RT(reserve_work)(cuvil_ctx *ctx, uint64_t bytes) {
  if (bytes <= ctx->work_bytes) return CUVIL_OK;
  size_t had = ctx->work_bytes;
  size_t asked = (size_t)bytes + CUVIL_ALIGN;
  void *memory = NULL;
  if (bytes < SIZE_MAX / 2) {
    release_work(ctx);
    memory = ctx->allocate ? ctx->allocate(ctx->user, NULL, asked) : map_memory(asked, 0);
  }
  if (!memory)
    return CUVIL_RT(fail)(ctx, CUVIL_NO_MEMORY, "not enough memory: these dims need %d bytes, there are %d", (int64_t)bytes,
                          (int64_t)had);
  size_t skipped = (0 - (uintptr_t)memory) % CUVIL_ALIGN;
  ctx->work_source = ctx->allocate ? CUVIL_WORK_ALLOCATED : CUVIL_WORK_MAPPED;
  ctx->work_memory = memory;
  ctx->work_memory_bytes = asked;
  ctx->work = (uint8_t *)memory + skipped;
  ctx->work_bytes = asked - skipped;
  return CUVIL_OK;
}

static void release_heap(cuvil_ctx *ctx, cuvil_heap *heap) {
  if (!heap->memory) return;
  if (ctx->allocate)
    ctx->allocate(ctx->user, heap->memory, 0);
  else
    unmap(heap->memory, heap->memory_bytes);
  memset(heap, 0, sizeof *heap);
}

static cuvil_heap make_heap(cuvil_ctx *ctx, uint64_t bytes) {
  cuvil_heap made;
  memset(&made, 0, sizeof made);
  if (bytes >= SIZE_MAX / 2 - CUVIL_ALIGN) return made;
  size_t asked = (size_t)bytes + CUVIL_ALIGN;
  made.memory = ctx->allocate ? ctx->allocate(ctx->user, NULL, asked) : map_memory(asked, 1);
  if (!made.memory) return made;
  size_t skipped = (0 - (uintptr_t)made.memory) % CUVIL_ALIGN;
  made.memory_bytes = asked;
  made.data = (uint8_t *)made.memory + skipped;
  made.bytes = asked - skipped;
  return made;
}

#ifndef CUVIL_LEAST_HEAP
#define CUVIL_LEAST_HEAP (4096 - CUVIL_ALIGN) /* bytes; a page */
#endif

/* At least `bytes` for what `name` is; where it grows, twice as much as before, so that growing often stays
   cheap. What is in it is lost unless `keep`. */
int CUVIL_RT(grow)(cuvil_ctx *ctx, cuvil_heap *heap, int64_t bytes, int keep, const char *name) {
  if (bytes < 0) return CUVIL_RT(fail)(ctx, CUVIL_BAD_DATA, "'%s': its size is negative", name);
  if (heap->data && (uint64_t)bytes <= heap->bytes) return CUVIL_OK;
  uint64_t wanted = 2 * (uint64_t)heap->bytes;
  if (wanted < CUVIL_LEAST_HEAP) wanted = CUVIL_LEAST_HEAP;
  if (wanted < (uint64_t)bytes) wanted = (uint64_t)bytes;
  if (!keep) release_heap(ctx, heap);
  cuvil_heap made = make_heap(ctx, wanted);
  if (!made.data) made = make_heap(ctx, (uint64_t)bytes);
  if (!made.data)
    return CUVIL_RT(fail)(ctx, CUVIL_NO_MEMORY, "not enough memory: '%s' needs %d bytes, which only the run could tell", name,
                          bytes);
  if (heap->data) memcpy(made.data, heap->data, heap->bytes);
  release_heap(ctx, heap);
  *heap = made;
  return CUVIL_OK;
}

const char *CUVIL_RT(error)(const cuvil_ctx *ctx) { return ctx ? ctx->error : NO_CONTEXT; }

void CUVIL_RT(close)(cuvil_ctx *ctx) {
  if (!ctx) return;
  if (ctx->workers) CUVIL_RT(workers_stop)(ctx->workers);
  release_work(ctx);
  release_heap(ctx, &ctx->scratch_heap);
  for (uint32_t i = 0; i < ctx->model->heap_count; i++) release_heap(ctx, &ctx->heaps[i]);
  if (ctx->weights_mapped) unmap((void *)(uintptr_t)ctx->weights, ctx->weights_mapped);
  if (ctx->block_mapped) unmap(ctx, ctx->block_mapped);
}
