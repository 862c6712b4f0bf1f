#include "tandem/core/attrs.h"

namespace tandem::detail {

size_t hash_bytes(const void* data, size_t bytes, size_t seed) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t h = seed ^ 0xcbf29ce484222325ull;
  for (size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * 0x100000001b3ull;
  return h;
}

}  // namespace tandem::detail
