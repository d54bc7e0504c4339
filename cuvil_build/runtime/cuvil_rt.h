/* What generated code and the runtime agree on. Private: no user of a module includes this. */
#ifndef CUVIL_RT_H_
#define CUVIL_RT_H_

#include <stddef.h>
#include <stdint.h>

#include "dlpack.h"
#include "host.h"
#include "ticks.h"

/* Runtime symbols carry the runtime's digest, so that models built by different versions link into
   one program. */
#define CUVIL_JOIN_(a, b, c) a##b##c
#define CUVIL_JOIN(a, b, c) CUVIL_JOIN_(a, b, c)
#define CUVIL_RT(name) CUVIL_JOIN(cuvil_rt_, CUVIL_RT_ID, _##name)
#define CUVIL_HIDDEN __attribute__((visibility("hidden")))

#if defined(__wasm__)
#define CUVIL_EXPORT(name) __attribute__((visibility("default"), export_name(#name)))
#else
#define CUVIL_EXPORT(name) __attribute__((visibility("default")))
#endif

/* The same numbers as in the generated header. */
enum {
  CUVIL_OK = 0,
  CUVIL_BAD_INPUT = 1,
  CUVIL_BAD_OUTPUT = 2,
  CUVIL_BAD_WEIGHTS = 3,
  CUVIL_BAD_CPU = 4,
  CUVIL_NO_MEMORY = 5,
  CUVIL_BAD_CALL = 6,
  CUVIL_BAD_DATA = 7
};

enum { CUVIL_EQUAL, CUVIL_UNEQUAL, CUVIL_AT_MOST };
enum { CUVIL_MAX_THREADS = 64, CUVIL_ALIGN = 64, CUVIL_ERROR_BYTES = 512 };

/* Computes the chunks begin <= c < end; chunks are independent of each other. */
typedef void cuvil_kernel(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end, void *scratch);

/* A number known at build time, or, where `value` >= 0, the run's values[value]. */
typedef struct {
  int64_t number;
  int32_t value;
} cuvil_number;

typedef struct {
  cuvil_number size;
  cuvil_number limit; /* the most that it can be, before the run knows; -1: nobody knows */
  const char *label; /* the dim's name in the model, or "" */
} cuvil_dim;

enum {
  CUVIL_OUTPUT_COPY,   /* the run copies it at its end */
  CUVIL_OUTPUT_DIRECT, /* the kernels write into the caller's memory */
  CUVIL_OUTPUT_HEAP    /* only the run knows its size: the module lends its own memory */
};

typedef struct {
  const char *name;
  uint8_t code;
  uint8_t bits;
  uint16_t rank;
  uint32_t buffer;
  const cuvil_dim *dims;
  /* Outputs only. */
  uint32_t way;
  cuvil_number nbytes; /* once the run is done */
  cuvil_number room;   /* what the caller's memory holds; -1 where the module lends it */
  int64_t nbytes_max; /* -1: no bound */
} cuvil_tensor;

/* A free dim; symbol s is values[s]. */
typedef struct {
  const char *label;
  int64_t minimum;
  int64_t maximum;
  uint32_t input;
  uint32_t axis;
} cuvil_symbol;

enum { CUVIL_PLACE_INPUT, CUVIL_PLACE_OUTPUT, CUVIL_PLACE_ARENA, CUVIL_PLACE_WEIGHT, CUVIL_PLACE_HEAP };

typedef struct {
  cuvil_number offset; /* bytes, or the number of the input, output or heap */
  uint32_t place;
} cuvil_buffer;

enum {
  CUVIL_CALL_DYNAMIC = 1, /* dims, chunks and work are indices of values, not numbers */
  CUVIL_CALL_JOINED = 2   /* runs at the same time as the call that follows */
};

typedef struct {
  uint16_t kernel;
  uint16_t buffer_count;
  uint16_t dim_count;
  uint16_t flags;
  uint32_t buffers; /* first entry in call_buffers */
  uint32_t dims;    /* first entry in call_dims (static) or call_values (dynamic) */
  int64_t chunks;
  int64_t work; /* scalar operations per chunk */
} cuvil_call;

/* A call with its numbers. */
typedef struct {
  cuvil_kernel *kernel;
  void *const *buffers;
  const int64_t *dims;
  int64_t chunks;
  int64_t work;
  int64_t grab;  /* how many chunks a thread takes at once, and in how many parts that cuts the call: */
  int64_t grabs; /* both are up to `parallel` */
} cuvil_job;

typedef struct cuvil_ctx cuvil_ctx;

/* One thread's part of the running calls, in grabs: a cache line of its own. */
typedef struct {
  _Alignas(CUVIL_ALIGN) int64_t next; /* the first one that is not taken */
  int64_t end;
  int64_t most; /* to take at once */
} cuvil_share;

typedef struct {
  const char *name;
  const cuvil_tensor *inputs;
  const cuvil_tensor *outputs;
  const cuvil_symbol *symbols;
  const cuvil_buffer *buffers;
  const cuvil_call *calls;
  const uint32_t *call_buffers;
  const int64_t *call_dims;
  const uint32_t *call_values;
  cuvil_kernel *const *kernels;
  const char *const *features;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t symbol_count;
  uint32_t buffer_count;
  uint32_t value_count;
  uint32_t heap_count;
  uint32_t feature_count;
  uint32_t max_jobs; /* calls that run at the same time; the next two are of all of them together */
  uint32_t max_job_buffers;
  uint32_t max_job_dims;
  uint32_t shape_count; /* dims of all outputs together */
  cuvil_number arena;
  cuvil_number scratch; /* bytes per thread */
  int64_t arena_max;    /* -1: no bound */
  int64_t scratch_max;  /* -1: no bound */
  uint64_t weights_bytes;
  uint64_t weights_id_offset;
  const uint8_t *weights_id; /* 32 bytes */
  const uint8_t *embedded;   /* the weights file as data of the library, or NULL */
  void (*compute)(int64_t *values); /* every value from the symbols */
  int (*body)(cuvil_ctx *ctx);
} cuvil_model;

typedef void *cuvil_allocate(void *user, void *memory, size_t bytes);

/* <model>_options of the generated header has the same layout; later versions only append. */
typedef struct {
  size_t size;
  int32_t threads;
  int32_t reserved;
  cuvil_allocate *allocate;
  void *user;
  const cuvil_pool *pool;
} cuvil_options;

typedef struct cuvil_workers cuvil_workers;

/* Memory that grows when a run needs more, and stays for the next run. */
typedef struct {
  uint8_t *data; /* aligned; NULL: none yet */
  size_t bytes;
  void *memory; /* as it came from the system or from `allocate` */
  size_t memory_bytes;
} cuvil_heap;

enum { CUVIL_WORK_GIVEN, CUVIL_WORK_MAPPED, CUVIL_WORK_ALLOCATED };

struct cuvil_ctx {
  const cuvil_model *model;
  int32_t broken; /* the status of an open that failed; every run repeats it */
  int32_t threads;
  const uint8_t *weights;
  size_t weights_mapped; /* bytes to unmap */
  size_t block_mapped;   /* bytes to unmap at `this` */
  uint8_t *work;         /* arena, lent outputs, scratch of each thread */
  size_t work_bytes;
  void *work_memory; /* as it came from the system or from `allocate` */
  size_t work_memory_bytes;
  int32_t work_source;
  int32_t reserved;
  cuvil_allocate *allocate;
  void *user;
  uint8_t *scratch;
  size_t scratch_stride;
  cuvil_heap scratch_heap; /* for calls whose dims only the run knows */
  cuvil_heap *heaps;
  const cuvil_pool *pool; /* NULL: the caller's thread does everything */
  cuvil_workers *workers; /* those of this context alone, or NULL */
  cuvil_profile *profile; /* NULL: nothing is timed */
  void **pointers;  /* of every buffer, set by each run */
  cuvil_job *jobs;  /* the running calls */
  void **arguments; /* of the running calls */
  int64_t *values;
  int64_t *dims;    /* of the running calls */
  int64_t *shapes;  /* lent where the caller gives no shape array */
  char error[CUVIL_ERROR_BYTES];
  /* Of the running calls. */
  uint32_t first_call; /* where anything is timed */
  int32_t shares;
  cuvil_share *share; /* of each thread */
};

static inline int64_t CUVIL_RT(at)(const cuvil_ctx *ctx, cuvil_number number) {
  return number.value < 0 ? number.number : ctx->values[number.value];
}

/* Ends the function with a status that isn't CUVIL_OK. */
#define CUVIL_TRY(call)          \
  do {                           \
    int status_ = (call);        \
    if (status_) return status_; \
  } while (0)

static inline size_t CUVIL_RT(align)(size_t bytes) {
  return (bytes + CUVIL_ALIGN - 1) & ~(size_t)(CUVIL_ALIGN - 1);
}

/* Division rounds down as in the model's shape arithmetic; by zero gives zero: the expression then
   belongs to a branch that isn't taken. */
static inline int64_t cuvil_floordiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return a == INT64_MIN ? INT64_MAX : -a;
  int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t cuvil_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* Sizes that data decides may be anything: what leaves 64 bits stops at the largest or smallest number, which
   no memory holds. */
static inline int64_t cuvil_add(int64_t a, int64_t b) {
  int64_t sum;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? INT64_MIN : INT64_MAX;
}

static inline int64_t cuvil_sub(int64_t a, int64_t b) {
  int64_t difference;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a < 0 ? INT64_MIN : INT64_MAX;
}

/* Without the builtin, which calls a function on 32-bit machines. */
static inline int64_t cuvil_mul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a;
  uint64_t y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  int negative = (a < 0) != (b < 0);
  if (x > INT64_MAX / y) return negative ? INT64_MIN : INT64_MAX;
  return negative ? -(int64_t)(x * y) : (int64_t)(x * y);
}

static inline int64_t cuvil_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t cuvil_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* context.c */
CUVIL_HIDDEN size_t CUVIL_RT(memory_bytes)(const cuvil_model *model, const void *options);
CUVIL_HIDDEN int CUVIL_RT(open)(const cuvil_model *model, cuvil_ctx **ctx, const char *path, const void *options);
CUVIL_HIDDEN int CUVIL_RT(open_memory)(const cuvil_model *model, cuvil_ctx **ctx, const void *weights,
                                       size_t weights_bytes, void *memory, size_t bytes, const void *options);
CUVIL_HIDDEN const char *CUVIL_RT(error)(const cuvil_ctx *ctx);
CUVIL_HIDDEN void CUVIL_RT(close)(cuvil_ctx *ctx);
CUVIL_HIDDEN int CUVIL_RT(reserve_work)(cuvil_ctx *ctx, uint64_t bytes);
CUVIL_HIDDEN int CUVIL_RT(grow)(cuvil_ctx *ctx, cuvil_heap *heap, int64_t bytes, int keep, const char *name);

/* run.c */
CUVIL_HIDDEN int CUVIL_RT(run)(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out);
CUVIL_HIDDEN int CUVIL_RT(run_once)(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out);
CUVIL_HIDDEN int CUVIL_RT(output_shapes)(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out);
CUVIL_HIDDEN size_t CUVIL_RT(output_bytes)(const cuvil_ctx *ctx, int index);
CUVIL_HIDDEN void CUVIL_RT(calls)(cuvil_ctx *ctx, uint32_t first, uint32_t count);
CUVIL_HIDDEN int CUVIL_RT(guard)(cuvil_ctx *ctx, int64_t left, int relation, int64_t right, const char *message);

CUVIL_HIDDEN int CUVIL_RT(read)(cuvil_ctx *ctx, int64_t *value, const void *data, int64_t element, int code, int bits,
                                int64_t low, int64_t high, const char *message);
CUVIL_HIDDEN int CUVIL_RT(ensure)(cuvil_ctx *ctx, uint32_t buffer, int64_t bytes, int keep, const char *name);
CUVIL_HIDDEN int CUVIL_RT(scratch)(cuvil_ctx *ctx, int64_t bytes);
CUVIL_HIDDEN void CUVIL_RT(copy)(void *target, const void *source, int64_t bytes);

/* threads.c */
CUVIL_HIDDEN size_t CUVIL_RT(workers_bytes)(int32_t threads);
CUVIL_HIDDEN cuvil_workers *CUVIL_RT(workers_make)(void *memory, int32_t threads);
CUVIL_HIDDEN const cuvil_pool *CUVIL_RT(workers_pool)(cuvil_workers *workers);
CUVIL_HIDDEN void CUVIL_RT(workers_stop)(cuvil_workers *workers);
CUVIL_HIDDEN void CUVIL_RT(parallel)(cuvil_ctx *ctx, uint32_t count); /* the first of ctx->jobs */
CUVIL_HIDDEN int CUVIL_RT(pool_open)(cuvil_pool **pool);
CUVIL_HIDDEN void CUVIL_RT(pool_close)(cuvil_pool *pool);

/* profile.c */
CUVIL_HIDDEN int CUVIL_RT(profile)(cuvil_ctx *ctx, cuvil_profile *profile);
CUVIL_HIDDEN int64_t CUVIL_RT(ticks)(const cuvil_ctx *ctx);
CUVIL_HIDDEN int CUVIL_RT(timed_run)(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out);
CUVIL_HIDDEN void CUVIL_RT(timed_launch)(cuvil_ctx *ctx, uint32_t first, uint32_t count);
CUVIL_HIDDEN void CUVIL_RT(timed_kernel)(cuvil_ctx *ctx, const cuvil_job *job, int64_t begin, int64_t end,
                                         void *scratch);

/* cpu.c */
CUVIL_HIDDEN int CUVIL_RT(cpu_has)(const char *feature);

/* text.c: %s, %d (int64_t), %t (dtype: code, bits, lanes as ints) */
CUVIL_HIDDEN int CUVIL_RT(fail)(cuvil_ctx *ctx, int status, const char *format, ...);

#endif
