// Products of bf16 panels on x86-64. AVX512-BF16: a pair of elements of a row of A times that of each of 16 columns of
// B is added to 16 sums. AMX: 16 rows of A times 16 columns of B over 32 elements of k are added to 16 x 16 sums.
#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tandem/backends/cpu/gemm_bf16.h"

namespace tandem::cpu {
namespace {

// ---- AVX512-BF16 ------------------------------------------------------------------------------------------

constexpr int kRows = 8, kVectors = 3, kColumns = 16 * kVectors;

__attribute__((target("avx512f,avx512bf16"))) void multiply_avx512(const BFloat16* a, const BFloat16* b,
                                                                   int64_t k, float* sums) {
  __m512 at[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) at[r][v] = _mm512_setzero_ps();
  for (; k > 0; k -= 2, a += 2 * kRows, b += 2 * kColumns) {
    __m512bh columns[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) columns[v] = (__m512bh)_mm512_load_si512(b + 32 * v);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      int pair;
      __builtin_memcpy(&pair, a + 2 * r, sizeof pair);
      const __m512bh row = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) at[r][v] = _mm512_dpbf16_ps(at[r][v], row, columns[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(sums + r * kColumns + 16 * v, at[r][v]);
}

constexpr Bf16Kernel kAvx512{"avx512_bf16", kRows, kColumns, 2, 2, 2, &multiply_avx512};

bool has_avx512_bf16() { return __builtin_cpu_supports("avx512bf16"); }

// ---- AMX --------------------------------------------------------------------------------------------------

constexpr int kSide = 32, kHalf = 16;  // of a tile of C: two by two of the processor's tiles
constexpr int kStep = 32;              // elements of k in one

/// The argument of LDTILECFG: every tile has 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfiguration kConfiguration;

__attribute__((target("amx-tile"))) void enter_amx() { _tile_loadconfig(&kConfiguration); }
__attribute__((target("amx-tile"))) void leave_amx() {
  _tile_release();
}  // so that switches of threads save no tiles

/// Tiles 0-3 hold C, 4 and 5 the halves of the rows of A, 6 and 7 those of the columns of B.
__attribute__((target("amx-tile,amx-bf16"))) void multiply_amx(const BFloat16* a, const BFloat16* b,
                                                               int64_t k, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (; k > 0; k -= kStep, a += kSide * kStep, b += kSide * kStep) {
    _tile_loadd(4, a, 2 * kStep);
    _tile_loadd(6, b, 4 * kSide);
    _tile_loadd(7, b + 2 * kHalf, 4 * kSide);
    _tile_loadd(5, a + kHalf * kStep, 2 * kStep);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, 4 * kSide);
  _tile_stored(1, sums + kHalf, 4 * kSide);
  _tile_stored(2, sums + kHalf * kSide, 4 * kSide);
  _tile_stored(3, sums + kHalf * kSide + kHalf, 4 * kSide);
}

constexpr Bf16Kernel kAmx{"amx", kSide, kSide, kStep, 2, kStep, &multiply_amx, &enter_amx, &leave_amx};

/// The processor has it, and the system lets this process use it: Linux wants to be asked once.
bool has_amx() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kAmxBf16) && (d & kAmxTile) &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const Bf16Candidate kBf16Candidates[] = {{&kAmx, &has_amx}, {&kAvx512, &has_avx512_bf16}, {nullptr, nullptr}};

}  // namespace tandem::cpu

#endif
