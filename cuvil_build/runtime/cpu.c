/* Which CPU features this machine and its operating system offer. */
#include "cuvil_rt.h"
#include "system.h"

#if defined(__x86_64__)

enum { EAX, EBX, ECX, EDX };
/* Register state that the operating system must save: SSE+AVX, and beside these the AVX-512 parts. */
enum { SAVE_NONE = 0, SAVE_YMM = 0x6, SAVE_ZMM = 0xe6, SAVE_AMX = 0x60000 };

typedef struct {
  const char *name;
  uint32_t leaf;
  uint32_t subleaf;
  uint8_t reg;
  uint8_t bit;
  uint32_t save;
} feature_bit;

static const feature_bit FEATURES[] = {
    {"sse", 1, 0, EDX, 25, SAVE_NONE},
    {"sse2", 1, 0, EDX, 26, SAVE_NONE},
    {"sse3", 1, 0, ECX, 0, SAVE_NONE},
    {"ssse3", 1, 0, ECX, 9, SAVE_NONE},
    {"fma", 1, 0, ECX, 12, SAVE_YMM},
    {"cx16", 1, 0, ECX, 13, SAVE_NONE},
    {"sse4.1", 1, 0, ECX, 19, SAVE_NONE},
    {"sse4.2", 1, 0, ECX, 20, SAVE_NONE},
    {"movbe", 1, 0, ECX, 22, SAVE_NONE},
    {"popcnt", 1, 0, ECX, 23, SAVE_NONE},
    {"avx", 1, 0, ECX, 28, SAVE_YMM},
    {"f16c", 1, 0, ECX, 29, SAVE_YMM},
    {"bmi", 7, 0, EBX, 3, SAVE_NONE},
    {"avx2", 7, 0, EBX, 5, SAVE_YMM},
    {"bmi2", 7, 0, EBX, 8, SAVE_NONE},
    {"avx512f", 7, 0, EBX, 16, SAVE_ZMM},
    {"avx512dq", 7, 0, EBX, 17, SAVE_ZMM},
    {"avx512cd", 7, 0, EBX, 28, SAVE_ZMM},
    {"avx512bw", 7, 0, EBX, 30, SAVE_ZMM},
    {"avx512vl", 7, 0, EBX, 31, SAVE_ZMM},
    {"avx512vbmi", 7, 0, ECX, 1, SAVE_ZMM},
    {"avx512vnni", 7, 0, ECX, 11, SAVE_ZMM},
    {"avx512fp16", 7, 0, EDX, 23, SAVE_ZMM},
    {"amx-bf16", 7, 0, EDX, 22, SAVE_AMX},
    {"amx-tile", 7, 0, EDX, 24, SAVE_AMX},
    {"amx-int8", 7, 0, EDX, 25, SAVE_AMX},
    {"avxvnni", 7, 1, EAX, 4, SAVE_YMM},
    {"avx512bf16", 7, 1, EAX, 5, SAVE_ZMM},
    {"lahf", 0x80000001u, 0, ECX, 0, SAVE_NONE},
    {"lzcnt", 0x80000001u, 0, ECX, 5, SAVE_NONE},
};

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
  __asm__ volatile("cpuid" : "=a"(out[EAX]), "=b"(out[EBX]), "=c"(out[ECX]), "=d"(out[EDX]) : "a"(leaf), "c"(subleaf));
}

static uint32_t saved_state(void) {
  uint32_t r[4], low, high;
  cpuid(1, 0, r);
  if (!(r[ECX] >> 27 & 1)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/* Spellings differ between tools: avx512_vnni, avx512-vnni and avx512vnni are one. */
static int same_name(const char *left, const char *right) {
  for (;; left++, right++) {
    while (*left == '_' || *left == '-' || *left == '.') left++;
    while (*right == '_' || *right == '-' || *right == '.') right++;
    if (*left != *right) return 0;
    if (!*left) return 1;
  }
}

static int cpu_offers(const feature_bit *feature) {
  uint32_t r[4];
  cpuid(feature->leaf & 0x80000000u, 0, r);
  if (r[EAX] < feature->leaf) return 0;
  if (feature->subleaf) {
    cpuid(feature->leaf, 0, r);
    if (r[EAX] < feature->subleaf) return 0;
  }
  cpuid(feature->leaf, feature->subleaf, r);
  if (!(r[feature->reg] >> feature->bit & 1)) return 0;
  return !feature->save || (saved_state() & feature->save) == feature->save;
}

int CUVIL_RT(cpu_has)(const char *feature) {
  for (size_t i = 0; i < sizeof FEATURES / sizeof FEATURES[0]; i++)
    if (same_name(FEATURES[i].name, feature)) return cpu_offers(&FEATURES[i]);
  return 0;
}

#elif defined(__aarch64__) && defined(__linux__)

/* Linux answers reads of these registers for programs; the second is named by its number, since assemblers want SVE
   for the name. */
static uint64_t processor_features(void) {
  uint64_t value;
  __asm__("mrs %0, ID_AA64PFR0_EL1" : "=r"(value));
  return value;
}

static uint64_t sve_features(void) {
  uint64_t value;
  __asm__("mrs %0, S3_0_C0_C4_4" : "=r"(value));
  return value;
}

/* Of instructions: 4 bits each. */
static uint64_t instruction_features(void) {
  uint64_t value;
  __asm__("mrs %0, ID_AA64ISAR0_EL1" : "=r"(value));
  return value;
}

static int is_name(const char *name, const char *text) {
  while (*text && *name == *text) name++, text++;
  return !*text && !*name;
}

/* AArch64 has NEON always. */
int CUVIL_RT(cpu_has)(const char *feature) {
  if (is_name(feature, "neon")) return 1;
  if (is_name(feature, "dotprod")) return (instruction_features() >> 44 & 15) != 0;
  int sve = (processor_features() >> 32 & 15) != 0;
  if (is_name(feature, "sve")) return sve;
  return is_name(feature, "sve2") && sve && (sve_features() & 15) != 0;
}

#else

/* A WebAssembly engine refuses a module whose instructions it lacks. */
int CUVIL_RT(cpu_has)(const char *feature) {
  (void)feature;
  return 1;
}

#endif
