/* One run: check the inputs, compute what depends on the dims, place the buffers, call the kernels. */
#include "cuvil_rt.h"
#include "system.h"

/* ---- inputs ---- */

static int check_kind(cuvil_ctx *ctx, const cuvil_tensor *spec, const DLTensor *given) {
  if (given->dtype.code != spec->code || given->dtype.bits != spec->bits || given->dtype.lanes != 1)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': dtype is %t, expected %t", spec->name,
                          (int)given->dtype.code, (int)given->dtype.bits, (int)given->dtype.lanes, (int)spec->code,
                          (int)spec->bits, 1);
  if (given->ndim != spec->rank)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': rank is %d, expected %d", spec->name, (int64_t)given->ndim,
                          (int64_t)spec->rank);
  if (given->ndim && !given->shape)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': shape is NULL", spec->name);
  if (given->device.device_type != kDLCPU)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': device type is %d, expected 1 (CPU)", spec->name,
                          (int64_t)given->device.device_type);
  return CUVIL_OK;
}

static int fail_dim(cuvil_ctx *ctx, const char *input, int64_t axis, const char *label, int64_t got, const char *expected,
                    int64_t low, const char *to, int64_t high) {
  const char *open = *label ? " ('" : "";
  const char *shut = *label ? "')" : "";
  if (!to)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': dim %d%s%s%s is %d, %s %d", input, axis, open, label, shut, got,
                          expected, low);
  return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': dim %d%s%s%s is %d, %s %d%s%d", input, axis, open, label, shut,
                        got, expected, low, to, high);
}

static int read_symbols(cuvil_ctx *ctx, const DLTensor *in) {
  const cuvil_model *model = ctx->model;
  for (uint32_t i = 0; i < model->symbol_count; i++) {
    const cuvil_symbol *symbol = &model->symbols[i];
    int64_t got = in[symbol->input].shape[symbol->axis];
    if (got < symbol->minimum || got > symbol->maximum)
      return fail_dim(ctx, model->inputs[symbol->input].name, symbol->axis, symbol->label, got, "allowed",
                      symbol->minimum, "..", symbol->maximum);
    ctx->values[i] = got;
  }
  return CUVIL_OK;
}

static int check_strides(cuvil_ctx *ctx, const cuvil_tensor *spec, const DLTensor *given) {
  int64_t step = 1;
  for (int32_t axis = given->ndim - 1; axis >= 0 && given->strides; axis--) {
    if (given->shape[axis] != 1 && given->strides[axis] != step)
      return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': not compact: stride of dim %d is %d, expected %d", spec->name,
                            (int64_t)axis, given->strides[axis], step);
    step = cuvil_mul(step, given->shape[axis]);
  }
  return CUVIL_OK;
}

static int check_dims_and_data(cuvil_ctx *ctx, const cuvil_tensor *spec, const DLTensor *given) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < given->ndim; axis++) {
    int64_t expected = CUVIL_RT(at)(ctx, spec->dims[axis].limit);
    if (expected < 0) expected = given->shape[axis]; /* the body will compute it: only in modules that check kernels */
    if (given->shape[axis] != expected)
      return fail_dim(ctx, spec->name, axis, spec->dims[axis].label, given->shape[axis], "expected", expected, NULL, 0);
    count = cuvil_mul(count, expected);
  }
  if (!count) return CUVIL_OK;
  if (check_strides(ctx, spec, given)) return CUVIL_BAD_INPUT;
  if (!given->data) return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': data is NULL", spec->name);
  if (((uintptr_t)given->data + (uintptr_t)given->byte_offset) % ((spec->bits + 7u) / 8u))
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': data is not aligned to %d bytes", spec->name,
                          (int64_t)((spec->bits + 7) / 8));
  return CUVIL_OK;
}

static int read_inputs(cuvil_ctx *ctx, const DLTensor *in) {
  const cuvil_model *model = ctx->model;
  if (!in && model->input_count) return CUVIL_RT(fail)(ctx, CUVIL_BAD_CALL, "the inputs are NULL");
  for (uint32_t i = 0; i < model->input_count; i++)
    if (check_kind(ctx, &model->inputs[i], &in[i])) return CUVIL_BAD_INPUT;
  if (read_symbols(ctx, in)) return CUVIL_BAD_INPUT;
  if (model->compute) model->compute(ctx->values);
  return CUVIL_OK;
}

/* ---- outputs ---- */

/* An output array used again still shows what the last run lent; that is asked for anew, never written
   to as if it were the caller's. */
static void forget_lent(const cuvil_ctx *ctx, DLTensor *given) {
  uintptr_t data = (uintptr_t)given->data;
  uintptr_t work = (uintptr_t)ctx->work;
  if (data >= work && data - work < ctx->work_bytes) given->data = NULL;
  for (uint32_t i = 0; i < ctx->model->heap_count; i++) {
    uintptr_t heap = (uintptr_t)ctx->heaps[i].data;
    if (data >= heap && data - heap < ctx->heaps[i].bytes) given->data = NULL;
  }
}

static int check_output(cuvil_ctx *ctx, const cuvil_tensor *spec, DLTensor *given) {
  forget_lent(ctx, given);
  if (given->data && spec->way == CUVIL_OUTPUT_HEAP)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_OUTPUT,
                          "output '%s': its size has no limit before the run: data must be NULL, the module lends memory",
                          spec->name);
  if (given->data && ((uintptr_t)given->data + (uintptr_t)given->byte_offset) % ((spec->bits + 7u) / 8u))
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_OUTPUT, "output '%s': data is not aligned to %d bytes", spec->name,
                          (int64_t)((spec->bits + 7) / 8));
  return CUVIL_OK;
}

/* Before the run has decided all dims: at most, and -1 where nothing is known. */
static void describe_outputs(cuvil_ctx *ctx, DLTensor *out, int decided) {
  const cuvil_model *model = ctx->model;
  int64_t *lent = ctx->shapes;
  for (uint32_t i = 0; i < model->output_count; i++) {
    const cuvil_tensor *spec = &model->outputs[i];
    if (!out[i].shape) out[i].shape = lent;
    for (uint32_t axis = 0; axis < spec->rank; axis++) {
      const cuvil_dim *dim = &spec->dims[axis];
      out[i].shape[axis] = CUVIL_RT(at)(ctx, decided ? dim->size : dim->limit);
    }
    lent += spec->rank;
    out[i].device.device_type = kDLCPU;
    out[i].device.device_id = 0;
    out[i].ndim = spec->rank;
    out[i].dtype.code = spec->code;
    out[i].dtype.bits = spec->bits;
    out[i].dtype.lanes = 1;
    out[i].strides = NULL;
  }
}

size_t CUVIL_RT(output_bytes)(const cuvil_ctx *ctx, int index) {
  if (!ctx || index < 0 || (uint32_t)index >= ctx->model->output_count) return 0;
  const cuvil_tensor *spec = &ctx->model->outputs[index];
  if (spec->nbytes_max >= 0) return (size_t)spec->nbytes_max;
  return (size_t)CUVIL_RT(at)(ctx, spec->way == CUVIL_OUTPUT_HEAP ? spec->nbytes : spec->room);
}

/* ---- memory ---- */

static int64_t aligned_bytes(const cuvil_ctx *ctx, cuvil_number number) {
  int64_t bytes = CUVIL_RT(at)(ctx, number);
  return bytes > INT64_MAX - CUVIL_ALIGN ? INT64_MAX : (int64_t)(((uint64_t)bytes + CUVIL_ALIGN - 1) & ~(uint64_t)(CUVIL_ALIGN - 1));
}

static int is_lent(const cuvil_tensor *spec, const DLTensor *out) {
  return !out->data && spec->way != CUVIL_OUTPUT_HEAP;
}

/* Arena first, then the outputs that are lent, then each thread's scratch. */
static int place_work(cuvil_ctx *ctx, DLTensor *out) {
  const cuvil_model *model = ctx->model;
  int64_t arena = aligned_bytes(ctx, model->arena);
  int64_t stride = aligned_bytes(ctx, model->scratch);
  int64_t lent = 0;
  for (uint32_t i = 0; i < model->output_count; i++)
    if (is_lent(&model->outputs[i], &out[i])) lent = cuvil_add(lent, aligned_bytes(ctx, model->outputs[i].room));
  int64_t all = cuvil_add(cuvil_add(arena, lent), cuvil_mul(ctx->threads, stride));
  /* a little more, so that even a lent output without elements lies inside: see forget_lent */
  if (CUVIL_RT(reserve_work)(ctx, (uint64_t)cuvil_add(all, CUVIL_ALIGN))) return CUVIL_NO_MEMORY;
  uint8_t *at = ctx->work + arena;
  ctx->scratch = at + lent;
  ctx->scratch_stride = (size_t)stride;
  for (uint32_t i = 0; i < model->output_count; i++) {
    if (!is_lent(&model->outputs[i], &out[i])) continue;
    out[i].data = at;
    out[i].byte_offset = 0;
    at += aligned_bytes(ctx, model->outputs[i].room);
  }
  return CUVIL_OK;
}

static uint8_t *data_of(const DLTensor *tensor) {
  return tensor->data ? (uint8_t *)tensor->data + tensor->byte_offset : NULL;
}

static void place_buffers(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out) {
  const cuvil_model *model = ctx->model;
  for (uint32_t i = 0; i < model->buffer_count; i++) {
    const cuvil_buffer *buffer = &model->buffers[i];
    int64_t offset = CUVIL_RT(at)(ctx, buffer->offset);
    uint8_t *place = NULL;
    if (buffer->place == CUVIL_PLACE_INPUT) place = data_of(&in[offset]);
    if (buffer->place == CUVIL_PLACE_OUTPUT) place = data_of(&out[offset]);
    if (buffer->place == CUVIL_PLACE_ARENA) place = ctx->work + offset;
    if (buffer->place == CUVIL_PLACE_WEIGHT) place = (uint8_t *)(uintptr_t)ctx->weights + offset;
    if (buffer->place == CUVIL_PLACE_HEAP) place = ctx->heaps[offset].data;
    ctx->pointers[i] = place;
  }
}

/* ---- the body's instructions ---- */

static void set_job(const cuvil_ctx *ctx, const cuvil_call *call, cuvil_job *job, void **arguments, int64_t *dims) {
  const cuvil_model *model = ctx->model;
  const uint32_t *buffers = model->call_buffers + call->buffers;
  for (uint32_t i = 0; i < call->buffer_count; i++) arguments[i] = ctx->pointers[buffers[i]];
  job->kernel = model->kernels[call->kernel];
  job->buffers = arguments;
  job->dims = model->call_dims + call->dims;
  job->chunks = call->chunks;
  job->work = call->work;
  if (!(call->flags & CUVIL_CALL_DYNAMIC)) return;
  const uint32_t *values = model->call_values + call->dims;
  for (uint32_t i = 0; i < call->dim_count; i++) dims[i] = ctx->values[values[i]];
  job->dims = dims;
  job->chunks = ctx->values[call->chunks];
  job->work = ctx->values[call->work];
}

void CUVIL_RT(calls)(cuvil_ctx *ctx, uint32_t first, uint32_t count) {
  const cuvil_call *call = ctx->model->calls + first;
  const cuvil_call *end = call + count;
  while (call < end) {
    void **arguments = ctx->arguments;
    int64_t *dims = ctx->dims;
    uint32_t jobs = 0, launched = (uint32_t)(call - ctx->model->calls);
    int joined;
    do {
      set_job(ctx, call, &ctx->jobs[jobs++], arguments, dims);
      arguments += call->buffer_count;
      dims += call->dim_count;
      joined = call->flags & CUVIL_CALL_JOINED;
      call++;
    } while (joined);
    if (ctx->profile)
      CUVIL_RT(timed_launch)(ctx, launched, jobs);
    else
      CUVIL_RT(parallel)(ctx, jobs);
  }
}

int CUVIL_RT(guard)(cuvil_ctx *ctx, int64_t left, int relation, int64_t right, const char *message) {
  static const char *const allowed[] = {"expected", "allowed: anything but", "allowed: at most"};
  int holds = relation == CUVIL_AT_MOST ? left <= right : (left == right) == (relation == CUVIL_EQUAL);
  if (holds) return CUVIL_OK;
  return CUVIL_RT(fail)(ctx, CUVIL_BAD_DATA, "%s: is %d, %s %d", message, left, allowed[relation], right);
}

int CUVIL_RT(ensure)(cuvil_ctx *ctx, uint32_t buffer, int64_t bytes, int keep, const char *name) {
  cuvil_heap *heap = &ctx->heaps[ctx->model->buffers[buffer].offset.number];
  CUVIL_TRY(CUVIL_RT(grow)(ctx, heap, bytes, keep, name));
  ctx->pointers[buffer] = heap->data;
  return CUVIL_OK;
}

int CUVIL_RT(scratch)(cuvil_ctx *ctx, int64_t bytes) {
  if (bytes <= 0 || (uint64_t)bytes <= ctx->scratch_stride) return CUVIL_OK;
  int64_t stride = cuvil_mul(cuvil_add(bytes, CUVIL_ALIGN - 1) / CUVIL_ALIGN, CUVIL_ALIGN);
  CUVIL_TRY(CUVIL_RT(grow)(ctx, &ctx->scratch_heap, cuvil_mul(ctx->threads, stride), 0, "scratch memory"));
  ctx->scratch = ctx->scratch_heap.data;
  ctx->scratch_stride = (size_t)stride;
  return CUVIL_OK;
}

#define CUVIL_ELEMENT(type)                                                               \
  do {                                                                                    \
    type got;                                                                             \
    memcpy(&got, (const uint8_t *)data + element * (int64_t)sizeof(type), sizeof(type));  \
    return (int64_t)got;                                                                  \
  } while (0)

static int64_t element_of(const void *data, int64_t element, int code, int bits) {
  if (code == kDLBool) return ((const uint8_t *)data)[element] != 0;
  if (code == kDLInt) {
    if (bits == 8) CUVIL_ELEMENT(int8_t);
    if (bits == 16) CUVIL_ELEMENT(int16_t);
    if (bits == 32) CUVIL_ELEMENT(int32_t);
    CUVIL_ELEMENT(int64_t);
  }
  if (bits == 8) CUVIL_ELEMENT(uint8_t);
  if (bits == 16) CUVIL_ELEMENT(uint16_t);
  if (bits == 32) CUVIL_ELEMENT(uint32_t);
  uint64_t large;
  memcpy(&large, (const uint8_t *)data + element * 8, 8);
  return large > INT64_MAX ? INT64_MAX : (int64_t)large;
}

int CUVIL_RT(read)(cuvil_ctx *ctx, int64_t *value, const void *data, int64_t element, int code, int bits, int64_t low,
                   int64_t high, const char *message) {
  int64_t got = element_of(data, element, code, bits);
  if (got < low)
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_DATA, "%s: is %d, allowed: at least %d", message, got, low);
  if (got > high) return CUVIL_RT(fail)(ctx, CUVIL_BAD_DATA, "%s: is %d, allowed: at most %d", message, got, high);
  *value = got;
  return CUVIL_OK;
}

void CUVIL_RT(copy)(void *target, const void *source, int64_t bytes) {
  if (bytes > 0 && target != source) memmove(target, source, (size_t)bytes);
}

/* ---- entries ---- */

static int check_call(cuvil_ctx *ctx, const DLTensor *out) {
  if (!ctx) return CUVIL_BAD_CALL;
  if (ctx->broken) return ctx->broken;
  ctx->error[0] = 0;
  if (!out && ctx->model->output_count) return CUVIL_RT(fail)(ctx, CUVIL_BAD_CALL, "the outputs are NULL");
  return CUVIL_OK;
}

int CUVIL_RT(output_shapes)(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out) {
  int status = check_call(ctx, out);
  if (!status) status = read_inputs(ctx, in);
  if (!status) describe_outputs(ctx, out, 0);
  return status;
}

int CUVIL_RT(run)(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out) {
  return ctx && ctx->profile ? CUVIL_RT(timed_run)(ctx, in, out) : CUVIL_RT(run_once)(ctx, in, out);
}

int CUVIL_RT(run_once)(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out) {
  int status = check_call(ctx, out);
  if (status) return status;
  const cuvil_model *model = ctx->model;
  status = read_inputs(ctx, in);
  for (uint32_t i = 0; i < model->input_count && !status; i++)
    status = check_dims_and_data(ctx, &model->inputs[i], &in[i]);
  for (uint32_t i = 0; i < model->output_count && !status; i++) status = check_output(ctx, &model->outputs[i], &out[i]);
  if (!status) status = place_work(ctx, out);
  if (status) return status;
  place_buffers(ctx, in, out);
  status = model->body(ctx);
  if (status) return status;
  describe_outputs(ctx, out, 1);
  for (uint32_t i = 0; i < model->output_count; i++) {
    const cuvil_tensor *spec = &model->outputs[i];
    uint8_t *made = ctx->pointers[spec->buffer];
    if (spec->way == CUVIL_OUTPUT_COPY) CUVIL_RT(copy)(data_of(&out[i]), made, CUVIL_RT(at)(ctx, spec->nbytes));
    if (spec->way != CUVIL_OUTPUT_HEAP) continue;
    out[i].data = made;
    out[i].byte_offset = 0;
  }
  return CUVIL_OK;
}
