// Products of bf16 matrices by the processor's own bf16 instructions: BFMMLA on ARM, AVX512-BF16 and AMX on x86-64.
// What differs between them is one record with a function that multiplies two panels; packing, edges, blocks and
// threads are the same for all, and for an emulation of them in the tests.
//
// What the instructions have in common, other than f32 arithmetic on widened elements: subnormal elements count as
// zero, and subnormal sums become zero. Infinities, NaNs and signed zeros are as in f32. How sums are rounded differs
// (tests/support/bf16_emulation.h says it in C++), so Backend::arithmetic() names the instruction.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/core/dtype.h"
#include "tandem/core/half.h"

namespace tandem::cpu {

/// A way to multiply bf16 panels. A panel of A holds `rows` rows and one of B `columns` columns over a range of k, as
/// [k / depth][row or column][k % depth]: the instruction reads `depth` neighbours in k at once.
struct Bf16Kernel {
  const char* name;
  int rows, columns;     // of a tile of C
  int a_depth, b_depth;  // 2, 4 or 32
  int k_step;            // the length of a panel is a multiple of it, filled up with zeros
  /// sums (rows, columns) = A panel · B panel over k elements. 64-byte aligned.
  void (*multiply)(const BFloat16* a, const BFloat16* b, int64_t k, float* sums);
  void (*enter)() = nullptr;  // called by each thread before a run of multiply()
  void (*leave)() = nullptr;  // and after it
};
inline constexpr int kBf16TileSize = 1024;  // rows * columns at most

/// The kernel in use, or null where products are computed in f32 on widened elements: where the processor has none
/// of the instructions, or where the environment variable TANDEM_BF16 is "widened". It may name a kernel, too:
/// "bfmmla", "amx" or "avx512_bf16". Throws Error where it names none that this processor has.
const Bf16Kernel* bf16_kernel();

/// "amx, " where products of this type are computed by that kernel; empty otherwise. For keys of the table of choices.
std::string words_of_bf16(DType dtype);

/// Chooses it, the fastest that the processor has. `wide` says whether 512-bit instructions may be used. Called once, at start-up.
void choose_bf16_kernel(bool wide);

/// Uses another one from now on, for tests; null: none. Returns the one before.
const Bf16Kernel* use_bf16_kernel(const Bf16Kernel* kernel);

/// The kernels of the processor's family, the fastest first, ended by null; can_run() looks whether this one has it.
struct Bf16Candidate {
  const Bf16Kernel* kernel;
  bool (*can_run)();
};
extern const Bf16Candidate kBf16Candidates[];

/// A matrix with any strides, counted in elements.
struct Bf16Matrix {
  const BFloat16* data;
  int64_t row;     // from one row to the next
  int64_t column;  // from one column to the next
};

/// Where C (m, n) goes: rounded once, after the bias, or as sums. Its columns are adjacent.
struct Bf16Destination {
  BFloat16* rounded = nullptr;
  float* sums = nullptr;                  // where `rounded` is null
  int64_t leading = 0;                    // from one row to the next
  bool add = false;                       // to what `sums` holds
  const BFloat16* row_bias = nullptr;     // one per row, or null
  const BFloat16* column_bias = nullptr;  // one per column, or null
};

/// From this k on a kernel is faster than f32 arithmetic on widened elements, for any m and n; below, the time goes into
/// C.
inline constexpr int64_t kShallowestBf16 = 8;

/// C = A (m, k) · B (k, n). The same bits for any number of threads, strides and addresses.
void gemm_bf16(const Bf16Kernel& kernel, int64_t m, int64_t n, int64_t k, const Bf16Matrix& a,
               const Bf16Matrix& b, const Bf16Destination& c);

}  // namespace tandem::cpu
