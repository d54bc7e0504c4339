/* A module written by hand: y = x * scale + 1 (rows by 4), total = sum of y as int64. Dims below 0 or above 1000
   are refused, 13 rows crash on purpose. */
#include <stddef.h>
#include <stdint.h>

#include "dlpack.h"

#if defined(__wasm__)
#define API(name) __attribute__((visibility("default"), export_name(#name)))
#else
#define API(name) __attribute__((visibility("default")))
#endif

typedef float vector __attribute__((vector_size(16)));
typedef struct {
  const char *error;
  const uint8_t *weights;
  int64_t total;
  float y[1000][4];
} tiny_ctx;

enum { WEIGHTS_BYTES = SIZE, SCALE_OFFSET = OFFSET };

API(tiny_memory_bytes) size_t tiny_memory_bytes(const void *options) {
  (void)options;
  return sizeof(tiny_ctx);
}

API(tiny_open_memory)
int tiny_open_memory(tiny_ctx **ctx, const void *weights, size_t bytes, void *memory, size_t size, const void *options) {
  (void)options;
  *ctx = NULL;
  if (size < sizeof(tiny_ctx)) return 5;
  *ctx = memory;
  (*ctx)->error = bytes == WEIGHTS_BYTES ? "" : "weights are truncated";
  (*ctx)->weights = weights;
  return bytes == WEIGHTS_BYTES ? 0 : 3;
}

API(tiny_run) int tiny_run(tiny_ctx *ctx, const DLTensor *in, DLTensor *out) {
  int64_t rows = in[0].shape[0];
  if (in[0].ndim != 2 || in[0].shape[1] != 4 || rows > 1000) {
    ctx->error = "input 'x': shape is not [rows <= 1000, 4]";
    return 1;
  }
  if (rows == 13) __builtin_trap();
  const float *x = (const float *)((const uint8_t *)in[0].data + in[0].byte_offset);
  const vector scale = *(const vector *)(const void *)(ctx->weights + SCALE_OFFSET);
  vector sum = {0, 0, 0, 0};
  for (int64_t row = 0; row < rows; row++) {
    vector value;
    __builtin_memcpy(&value, x + row * 4, sizeof value);
    value = value * scale + 1.0f;
    __builtin_memcpy(ctx->y[row], &value, sizeof value);
    sum += value;
  }
  ctx->total = (int64_t)(sum[0] + sum[1] + sum[2] + sum[3]);
  out[0].shape[0] = rows;
  out[0].shape[1] = 4;
  out[0].data = ctx->y;
  out[1].data = &ctx->total;
  out[0].byte_offset = out[1].byte_offset = 0;
  return 0;
}

API(tiny_error) const char *tiny_error(const tiny_ctx *ctx) { return ctx ? ctx->error : "no context"; }

API(tiny_close) void tiny_close(tiny_ctx *ctx) { (void)ctx; }
