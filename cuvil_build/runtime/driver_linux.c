/* A program without a C library that runs one module on a file of inputs: what emulators execute.

   driver INPUTS WEIGHTS OUTPUTS [REPEAT]

   WEIGHTS is a file, or - where the module has its weights in itself.
   INPUTS and OUTPUTS are tensor files, little-endian:
     u32 magic 'CUVL' (bytes 43 55 56 4c), u32 count, then per tensor
       u8 dlpack code, u8 bits, u16 rank, u32 zero, i64 dims[rank], u64 nbytes,
       zeros up to a multiple of 64 in the file, data, zeros up to a multiple of 64.
   With REPEAT, the run is done that many times, and one line `ns MINIMUM` is printed.
   Exit codes: 0 done, 1 with the error's text on stderr, 2 for a wrong command line. */
#include "cuvil_module.h"
#include "system.h"

#define CUVIL_API(name) CUVIL_JOIN(CUVIL_MODEL, _, name)

enum { STDOUT = 1, STDERR = 2, MAX_RANK = 16, FILE_MODE = 0644 };
enum { O_WRITE = 01 | 0100 | 01000, MAGIC = 0x4c565543 };

#if defined(__x86_64__)

enum { SYS_WRITE = 1, SYS_CLOSE = 3, SYS_MMAP = 9, SYS_MUNMAP = 11, SYS_CLOCK = 228, SYS_EXIT = 231, SYS_OPENAT = 257 };

static long system_call(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

__asm__(
    ".globl _start\n"
    "_start:\n"
    "  xor %ebp, %ebp\n"
    "  mov %rsp, %rdi\n"
    "  and $-16, %rsp\n"
    "  call cuvil_driver\n");

#elif defined(__aarch64__)

enum { SYS_WRITE = 64, SYS_CLOSE = 57, SYS_MMAP = 222, SYS_MUNMAP = 215, SYS_CLOCK = 113, SYS_EXIT = 94, SYS_OPENAT = 56 };

static long system_call(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}

__asm__(
    ".globl _start\n"
    "_start:\n"
    "  mov x29, #0\n"
    "  mov x30, #0\n"
    "  mov x0, sp\n"
    "  bl cuvil_driver\n");

#else
#error "the driver knows x86_64 and aarch64"
#endif

/* ---- the system functions that the module's loader asks for ---- */

void *mmap(void *address, size_t bytes, int protection, int flags, int file, long offset) {
  long result = system_call(SYS_MMAP, (long)address, (long)bytes, protection, flags, file, offset);
  return (void *)(result < 0 ? -1 : result);
}

int munmap(void *address, size_t bytes) { return (int)system_call(SYS_MUNMAP, (long)address, (long)bytes, 0, 0, 0, 0); }

static int open_file(const char *path, int flags) {
  return (int)system_call(SYS_OPENAT, -100, (long)path, flags, FILE_MODE, 0, 0);
}

int open(const char *path, int flags, ...) { return open_file(path, flags); }

int close(int file) { return (int)system_call(SYS_CLOSE, file, 0, 0, 0, 0, 0); }

long syscall(long number, ...) {
  __builtin_va_list args;
  __builtin_va_start(args, number);
  long a[6];
  for (int i = 0; i < 6; i++) a[i] = __builtin_va_arg(args, long);
  __builtin_va_end(args);
  long result = system_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  return result < 0 ? -1 : result;
}

/* ---- files and messages ---- */

static void write_all(int file, const void *bytes, size_t count) {
  const char *at = bytes;
  while (count) {
    long done = system_call(SYS_WRITE, file, (long)at, (long)count, 0, 0, 0);
    if (done <= 0) return;
    at += done;
    count -= (size_t)done;
  }
}

static size_t length_of(const char *text) {
  size_t length = 0;
  while (text[length]) length++;
  return length;
}

static void say(int file, const char *text) { write_all(file, text, length_of(text)); }

static int fail(const char *what, const char *why) {
  say(STDERR, what);
  say(STDERR, ": ");
  say(STDERR, why);
  say(STDERR, "\n");
  return 1;
}

static const uint8_t *map_file(const char *path, size_t *bytes) {
  int file = open_file(path, 0);
  if (file < 0) return NULL;
  *bytes = (size_t)system_call(CUVIL_SYS_LSEEK, file, 0, CUVIL_SEEK_END, 0, 0, 0);
  void *memory = mmap(NULL, *bytes, CUVIL_PROT_READ, CUVIL_MAP_PRIVATE, file, 0);
  close(file);
  return (intptr_t)memory == -1 ? NULL : memory;
}

/* ---- tensor files ---- */

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t rank;
  uint32_t zero;
} tensor_head;

static size_t round_up(size_t offset) { return (offset + 63) & ~(size_t)63; }

/* NULL, or why the file isn't one that fits. */
static const char *read_tensors(const uint8_t *file, size_t bytes, DLTensor *tensors, uint32_t count) {
  static int64_t dims[(CUVIL_MODEL_INPUTS ? CUVIL_MODEL_INPUTS : 1) * MAX_RANK];
  uint32_t start[2];
  if (bytes < sizeof start) return "no tensor file";
  memcpy(start, file, sizeof start);
  if (start[0] != MAGIC) return "no tensor file";
  if (start[1] != count) return "another number of tensors than the module has inputs";
  size_t at = sizeof start;
  for (uint32_t i = 0; i < count; i++) {
    tensor_head head;
    uint64_t nbytes;
    if (bytes - at < sizeof head) return "truncated";
    memcpy(&head, file + at, sizeof head);
    at += sizeof head;
    if (head.rank > MAX_RANK || bytes - at < head.rank * 8u + 8u) return "truncated";
    DLTensor *tensor = &tensors[i];
    tensor->shape = dims + i * MAX_RANK;
    memcpy(tensor->shape, file + at, head.rank * 8u);
    at += head.rank * 8u;
    memcpy(&nbytes, file + at, 8);
    at = round_up(at + 8);
    if (at > bytes || bytes - at < nbytes) return "truncated";
    tensor->data = (void *)(uintptr_t)(file + at);
    tensor->device.device_type = kDLCPU;
    tensor->ndim = head.rank;
    tensor->dtype.code = head.code;
    tensor->dtype.bits = head.bits;
    tensor->dtype.lanes = 1;
    at = round_up(at + nbytes);
    if (at > bytes) return "truncated";
  }
  return NULL;
}

static void write_tensors(int file, const DLTensor *tensors, uint32_t count) {
  static const uint8_t zeros[64];
  uint32_t start[2] = {MAGIC, count};
  write_all(file, start, sizeof start);
  size_t at = sizeof start;
  for (uint32_t i = 0; i < count; i++) {
    const DLTensor *tensor = &tensors[i];
    tensor_head head = {tensor->dtype.code, tensor->dtype.bits, (uint16_t)tensor->ndim, 0};
    uint64_t nbytes = tensor->dtype.bits;
    for (int32_t axis = 0; axis < tensor->ndim; axis++) nbytes *= (uint64_t)tensor->shape[axis];
    nbytes = (nbytes + 7) / 8;
    write_all(file, &head, sizeof head);
    write_all(file, tensor->shape, (size_t)tensor->ndim * 8);
    write_all(file, &nbytes, 8);
    at += sizeof head + (size_t)tensor->ndim * 8 + 8;
    write_all(file, zeros, round_up(at) - at);
    at = round_up(at);
    write_all(file, (const uint8_t *)tensor->data + tensor->byte_offset, nbytes);
    at += nbytes;
    write_all(file, zeros, round_up(at) - at);
    at = round_up(at);
  }
}

/* ---- the program ---- */

static uint64_t nanoseconds(void) {
  int64_t now[2] = {0, 0};
  system_call(SYS_CLOCK, 1, (long)now, 0, 0, 0, 0);
  return (uint64_t)now[0] * 1000000000u + (uint64_t)now[1];
}

static void say_number(uint64_t number) {
  char digits[24];
  char *at = digits + sizeof digits - 1;
  *at = 0;
  do {
    *--at = (char)('0' + number % 10);
    number /= 10;
  } while (number);
  say(STDOUT, at);
}

static int run_repeatedly(CUVIL_API(ctx) *ctx, const DLTensor *in, DLTensor *out, uint64_t repeat) {
  uint64_t best = UINT64_MAX;
  for (uint64_t i = 0; i < repeat; i++) {
    uint64_t begin = nanoseconds();
    if (CUVIL_API(run)(ctx, in, out)) return 1;
    uint64_t took = nanoseconds() - begin;
    best = took < best ? took : best;
  }
  say(STDOUT, "ns ");
  say_number(best);
  say(STDOUT, "\n");
  return 0;
}

static uint64_t parse_number(const char *text) {
  uint64_t number = 0;
  while (*text >= '0' && *text <= '9') number = number * 10 + (uint64_t)(*text++ - '0');
  return number;
}

static int drive(int count, char **args) {
  static DLTensor in[CUVIL_MODEL_INPUTS ? CUVIL_MODEL_INPUTS : 1];
  static DLTensor out[CUVIL_MODEL_OUTPUTS ? CUVIL_MODEL_OUTPUTS : 1];
  if (count < 4) {
    say(STDERR, "usage: driver INPUTS WEIGHTS OUTPUTS [REPEAT]\n");
    return 2;
  }
  size_t bytes = 0;
  const uint8_t *file = map_file(args[1], &bytes);
  if (!file) return fail(args[1], "cannot be read");
  const char *wrong = read_tensors(file, bytes, in, CUVIL_MODEL_INPUTS);
  if (wrong) return fail(args[1], wrong);
  CUVIL_API(ctx) *ctx = NULL;
  CUVIL_API(options) options = {.size = sizeof options, .threads = 1};
  const char *weights = args[2][0] == '-' && !args[2][1] ? NULL : args[2];
  if (CUVIL_API(open)(&ctx, weights, &options)) return fail("open", CUVIL_API(error)(ctx));
  int failed = count > 4 ? run_repeatedly(ctx, in, out, parse_number(args[4])) : CUVIL_API(run)(ctx, in, out);
  if (failed) return fail("run", CUVIL_API(error)(ctx));
  int target = open_file(args[3], O_WRITE);
  if (target < 0) return fail(args[3], "cannot be written");
  write_tensors(target, out, CUVIL_MODEL_OUTPUTS);
  close(target);
  CUVIL_API(close)(ctx);
  return 0;
}

void cuvil_driver(long *stack);

__attribute__((used)) void cuvil_driver(long *stack) {
  system_call(SYS_EXIT, drive((int)stack[0], (char **)(stack + 1)), 0, 0, 0, 0, 0);
  for (;;) {
  }
}
