#include "tandem/core/dtype.h"

#include <algorithm>
#include <limits>
#include <ostream>
#include <string>

#include "tandem/core/error.h"

namespace tandem {

namespace {
constexpr DTypeInfo kTable[kDTypeCount] = {
    {"f64", "F64", 8, DTypeClass::floating},   {"f32", "F32", 4, DTypeClass::floating},
    {"bf16", "BF16", 2, DTypeClass::floating}, {"f16", "F16", 2, DTypeClass::floating},
    {"i8", "I8", 1, DTypeClass::integer},      {"i16", "I16", 2, DTypeClass::integer},
    {"i32", "I32", 4, DTypeClass::integer},    {"i64", "I64", 8, DTypeClass::integer},
    {"u8", "U8", 1, DTypeClass::integer},      {"u16", "U16", 2, DTypeClass::integer},
    {"u32", "U32", 4, DTypeClass::integer},    {"u64", "U64", 8, DTypeClass::integer},
    {"bool", "BOOL", 1, DTypeClass::boolean},
};

bool is_signed_integer(DType d) { return d >= DType::i8 && d <= DType::i64; }
}  // namespace

const DTypeInfo& info(DType dtype) { return kTable[static_cast<int>(dtype)]; }

double largest_of(DType dtype) {
  return dtype == DType::f64    ? std::numeric_limits<double>::max()
         : dtype == DType::f16  ? 65504.0
         : dtype == DType::bf16 ? 0x1.FEp127
                                : static_cast<double>(std::numeric_limits<float>::max());
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  const DTypeClass ka = info(a).kind, kb = info(b).kind;
  if (ka != kb) return ka > kb ? a : b;
  if (ka == DTypeClass::floating) {
    if (bytes_of(a) == bytes_of(b)) return DType::f32;  // bf16 with f16
    return bytes_of(a) > bytes_of(b) ? a : b;
  }
  if (is_signed_integer(a) == is_signed_integer(b)) return bytes_of(a) > bytes_of(b) ? a : b;
  const DType with_sign = is_signed_integer(a) ? a : b, without = is_signed_integer(a) ? b : a;
  if (bytes_of(with_sign) > bytes_of(without)) return with_sign;
  switch (bytes_of(without)) {
    case 1:
      return DType::i16;
    case 2:
      return DType::i32;
    case 4:
      return DType::i64;
    default:
      return DType::f32;
  }
}

DType parse_dtype(std::string_view text) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (text == kTable[i].name) return static_cast<DType>(i);
  std::string names;
  for (const auto& row : kTable) names += std::string(names.empty() ? "" : ", ") + row.name;
  throw Error(str("dtype: must be one of ", names, "; got '", text, "'."));
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

}  // namespace tandem
