/* Error texts without a C library. */
#include <stdarg.h>

#include "cuvil_rt.h"
#include "system.h"

typedef struct {
  char *at;
  char *end; /* room for the final zero is kept */
} writer;

static void put_text(writer *w, const char *text) {
  while (*text && w->at < w->end) *w->at++ = *text++;
}

static void put_number(writer *w, int64_t number) {
  char digits[24];
  char *at = digits + sizeof digits - 1;
  uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
  *at = 0;
  do {
    *--at = (char)('0' + left % 10);
    left /= 10;
  } while (left);
  if (number < 0) *--at = '-';
  put_text(w, at);
}

static void put_dtype(writer *w, int code, int bits, int lanes) {
  static const char *const kinds[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool",
                                      /* with their bits in the name */
                                      "float8e3m4", "float8e4m3", "float8e4m3b11fnuz", "float8e4m3fn",
                                      "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0",
                                      "float6e2m3", "float6e3m2", "float4e2m1"};
  int known = code >= 0 && code < (int)(sizeof kinds / sizeof kinds[0]);
  put_text(w, known ? kinds[code] : "dtype code ");
  if (!known) {
    put_number(w, code);
    put_text(w, " of bits ");
  }
  if (!known || (code <= kDLBool && (code != kDLBool || bits != 8))) put_number(w, bits);
  if (lanes != 1) {
    put_text(w, "x");
    put_number(w, lanes);
  }
}

int CUVIL_RT(fail)(cuvil_ctx *ctx, int status, const char *format, ...) {
  writer w = {ctx->error, ctx->error + CUVIL_ERROR_BYTES - 1};
  va_list args;
  va_start(args, format);
  for (; *format && w.at < w.end; format++) {
    if (*format != '%') {
      *w.at++ = *format;
      continue;
    }
    format++;
    if (*format == 's') put_text(&w, va_arg(args, const char *));
    if (*format == 'd') put_number(&w, va_arg(args, int64_t));
    if (*format == 't') {
      int code = va_arg(args, int);
      int bits = va_arg(args, int);
      put_dtype(&w, code, bits, va_arg(args, int));
    }
  }
  va_end(args);
  *w.at = 0;
  return status;
}
