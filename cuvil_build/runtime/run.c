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
    step *= given->shape[axis];
  }
  return CUVIL_OK;
}

static int check_dims_and_data(cuvil_ctx *ctx, const cuvil_tensor *spec, const DLTensor *given) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < given->ndim; axis++) {
    int64_t expected = CUVIL_RT(at)(ctx, spec->dims[axis].size);
    if (given->shape[axis] != expected)
      return fail_dim(ctx, spec->name, axis, spec->dims[axis].label, given->shape[axis], "expected", expected, NULL, 0);
    count *= expected;
  }
  if (!count) return CUVIL_OK;
  if (check_strides(ctx, spec, given)) return CUVIL_BAD_INPUT;
  if (!given->data) return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': data is NULL", spec->name);
  if (((uintptr_t)given->data + (uintptr_t)given->byte_offset) % (spec->bits / 8u))
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_INPUT, "input '%s': data is not aligned to %d bytes", spec->name,
                          (int64_t)(spec->bits / 8));
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
}

static int check_output(cuvil_ctx *ctx, const cuvil_tensor *spec, DLTensor *given) {
  forget_lent(ctx, given);
  if (given->data && ((uintptr_t)given->data + (uintptr_t)given->byte_offset) % (spec->bits / 8u))
    return CUVIL_RT(fail)(ctx, CUVIL_BAD_OUTPUT, "output '%s': data is not aligned to %d bytes", spec->name,
                          (int64_t)(spec->bits / 8));
  return CUVIL_OK;
}

static void describe_outputs(cuvil_ctx *ctx, DLTensor *out) {
  const cuvil_model *model = ctx->model;
  int64_t *lent = ctx->shapes;
  for (uint32_t i = 0; i < model->output_count; i++) {
    const cuvil_tensor *spec = &model->outputs[i];
    if (!out[i].shape) out[i].shape = lent;
    for (uint32_t axis = 0; axis < spec->rank; axis++) out[i].shape[axis] = CUVIL_RT(at)(ctx, spec->dims[axis].size);
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
  return (size_t)(spec->nbytes_max < 0 ? CUVIL_RT(at)(ctx, spec->nbytes) : spec->nbytes_max);
}

/* ---- memory ---- */

/* Arena first, then the outputs that are lent, then each thread's scratch. */
static int place_work(cuvil_ctx *ctx, DLTensor *out) {
  const cuvil_model *model = ctx->model;
  size_t arena = CUVIL_RT(align)((size_t)CUVIL_RT(at)(ctx, model->arena));
  size_t lent = 0;
  for (uint32_t i = 0; i < model->output_count; i++)
    if (!out[i].data) lent += CUVIL_RT(align)((size_t)CUVIL_RT(at)(ctx, model->outputs[i].nbytes));
  ctx->scratch_stride = CUVIL_RT(align)((size_t)CUVIL_RT(at)(ctx, model->scratch));
  size_t scratch = (size_t)ctx->threads * ctx->scratch_stride;
  /* a little more, so that even a lent output without elements lies inside: see forget_lent */
  if (CUVIL_RT(reserve_work)(ctx, arena + lent + scratch + CUVIL_ALIGN)) return CUVIL_NO_MEMORY;
  uint8_t *at = ctx->work + arena;
  ctx->scratch = at + lent;
  for (uint32_t i = 0; i < model->output_count; i++) {
    if (out[i].data) continue;
    out[i].data = at;
    out[i].byte_offset = 0;
    at += CUVIL_RT(align)((size_t)CUVIL_RT(at)(ctx, model->outputs[i].nbytes));
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
    ctx->pointers[i] = place;
  }
}

/* ---- the body's instructions ---- */

void CUVIL_RT(calls)(cuvil_ctx *ctx, uint32_t first, uint32_t count) {
  const cuvil_model *model = ctx->model;
  for (const cuvil_call *call = model->calls + first; count; call++, count--) {
    const uint32_t *buffers = model->call_buffers + call->buffers;
    for (uint32_t i = 0; i < call->buffer_count; i++) ctx->arguments[i] = ctx->pointers[buffers[i]];
    const int64_t *dims = model->call_dims + call->dims;
    int64_t chunks = call->chunks;
    int64_t work = call->work;
    if (call->dynamic) {
      const uint32_t *values = model->call_values + call->dims;
      for (uint32_t i = 0; i < call->dim_count; i++) ctx->dims[i] = ctx->values[values[i]];
      dims = ctx->dims;
      chunks = ctx->values[chunks];
      work = ctx->values[work];
    }
    CUVIL_RT(parallel)(ctx, model->kernels[call->kernel], ctx->arguments, dims, chunks, work);
  }
}

int CUVIL_RT(guard)(cuvil_ctx *ctx, int64_t left, int relation, int64_t right, const char *message) {
  static const char *const allowed[] = {"expected", "allowed: anything but", "allowed: at most"};
  int holds = relation == CUVIL_AT_MOST ? left <= right : (left == right) == (relation == CUVIL_EQUAL);
  if (holds) return CUVIL_OK;
  return CUVIL_RT(fail)(ctx, CUVIL_BAD_DATA, "%s: is %d, %s %d", message, left, allowed[relation], right);
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
  if (!status) describe_outputs(ctx, out);
  return status;
}

int CUVIL_RT(run)(cuvil_ctx *ctx, const DLTensor *in, DLTensor *out) {
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
  describe_outputs(ctx, out);
  for (uint32_t i = 0; i < model->output_count; i++) {
    const cuvil_tensor *spec = &model->outputs[i];
    if (!spec->direct) CUVIL_RT(copy)(data_of(&out[i]), ctx->pointers[spec->buffer], CUVIL_RT(at)(ctx, spec->nbytes));
  }
  return CUVIL_OK;
}
