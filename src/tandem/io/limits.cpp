#include "tandem/io/limits.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <set>

#include "tandem/core/file.h"
#include "tandem/core/mutex.h"

namespace tandem::io {

namespace {

struct Named {
  const char* name;
  int64_t ReadingLimits::*value;
};
constexpr Named kNames[] = {{"bytes", &ReadingLimits::bytes},
                            {"pixels", &ReadingLimits::pixels},
                            {"ratio", &ReadingLimits::ratio},
                            {"free_bytes", &ReadingLimits::free_bytes},
                            {"header_bytes", &ReadingLimits::header_bytes}};

Mutex& limits_mutex() {
  static Mutex& mutex = *new Mutex(LockOrder::data);
  return mutex;
}
[[maybe_unused]] const auto& g_made_at_start = limits_mutex();  // in no fork's way
bool g_is_set = false;
ReadingLimits g_limits;

}  // namespace

ReadingLimits parse_reading_limits(const std::string& text) {
  ReadingLimits limits;
  std::set<std::string> given;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
    const std::string name = text.substr(at, std::min(equals, end) - at);
    const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const Named& one) { return name == one.name; });
    int64_t value = 0;
    const bool has_value = equals < end;
    const auto [last, error] =
        std::from_chars(text.data() + (has_value ? equals + 1 : end), text.data() + end, value);
    TD_CHECK(known != std::end(kNames) && has_value && error == std::errc() && last == text.data() + end &&
                 value >= 1,
             "TANDEM_READING_LIMITS: must be NAME=NUMBER,… of bytes, pixels, ratio, free_bytes and "
             "header_bytes with numbers of at least 1; got '",
             one_line(text.substr(at, end - at), 100), "'.");
    TD_CHECK(given.insert(name).second, "TANDEM_READING_LIMITS: each must be given once; got ", name,
             " twice. Leave one out.");
    limits.*known->value = value;
    at = end + 1;
  }
  return limits;
}

ReadingLimits reading_limits() {
  std::lock_guard lock(limits_mutex());
  if (!g_is_set) {
    const char* text = std::getenv("TANDEM_READING_LIMITS");
    g_limits = parse_reading_limits(text ? text : "");
    g_is_set = true;
  }
  return g_limits;
}

void set_reading_limits(const ReadingLimits& limits) {
  for (const Named& one : kNames)
    TD_CHECK(limits.*one.value >= 1, "set_reading_limits: ", one.name, " must be at least 1; got ",
             limits.*one.value, ".");
  std::lock_guard lock(limits_mutex());
  g_limits = limits;
  g_is_set = true;
}

int64_t unpacked_limit(uint64_t packed_bytes, int64_t max_bytes) {
  const ReadingLimits limits = reading_limits();
  uint64_t by_ratio = 0;
  if (__builtin_mul_overflow(packed_bytes, static_cast<uint64_t>(limits.ratio), &by_ratio) ||
      by_ratio > uint64_t{INT64_MAX})
    by_ratio = INT64_MAX;
  return std::min(max_bytes, std::max(static_cast<int64_t>(by_ratio), limits.free_bytes));
}

void check_unpacked(const std::string& where, const char* what, uint64_t packed_bytes,
                    uint64_t unpacked_bytes, int64_t max_bytes) {
  if (unpacked_bytes <= static_cast<uint64_t>(unpacked_limit(packed_bytes, max_bytes))) return;
  TD_CHECK(unpacked_bytes <= static_cast<uint64_t>(max_bytes), where, what, " must unpack to at most ",
           max_bytes, " bytes; it holds ", unpacked_bytes,
           " or more. It may not be what its name says: fetch it again, or raise the limit "
           "(TANDEM_READING_LIMITS=bytes=…).");
  throw Error(str(where, what, " must unpack to at most ", reading_limits().ratio,
                  " times its size; it unpacks from ", packed_bytes, " bytes to ", unpacked_bytes,
                  " or more. Where you trust it, raise the limit (TANDEM_READING_LIMITS=ratio=…)."));
}

}  // namespace tandem::io
