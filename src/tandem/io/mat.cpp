// The level-5 format: a header of 128 bytes, then elements, each with a type and a length; a matrix is an element
// made of elements, and any may be packed with zlib.
#include "tandem/io/mat.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "tandem/io/byte_reader.h"
#include "tandem/io/file.h"

namespace tandem::io {

namespace {

constexpr uint32_t kMatrix = 14, kCompressed = 15;
constexpr uint32_t kInt8 = 1, kInt32 = 5, kUint32 = 6;
constexpr size_t kMaxAxes = 32;

/// What the values of an element are stored as.
std::optional<DType> stored_type(uint32_t type) {
  switch (type) {
    case 1:
      return DType::i8;
    case 2:
      return DType::u8;
    case 3:
      return DType::i16;
    case 4:
      return DType::u16;
    case kInt32:
      return DType::i32;
    case kUint32:
      return DType::u32;
    case 7:
      return DType::f32;
    case 9:
      return DType::f64;
    case 12:
      return DType::i64;
    case 13:
      return DType::u64;
    default:
      return std::nullopt;
  }
}

/// What the array is in MATLAB. Values may be stored in a smaller type where they fit.
std::optional<DType> class_type(uint8_t mat_class) {
  constexpr DType kTypes[] = {DType::f64, DType::f32, DType::i8,  DType::u8,  DType::i16,
                              DType::u16, DType::i32, DType::u32, DType::i64, DType::u64};
  if (mat_class < 6 || mat_class > 15) return std::nullopt;
  return kTypes[mat_class - 6];
}

struct Element {
  uint32_t type;
  std::span<const uint8_t> bytes;
};

Element next_element(ByteReader& reader) {
  const auto first = reader.number<uint32_t>("an element's type");
  Element element;
  size_t padding;
  if (first >> 16 != 0) {  // short: type, length and up to four bytes in eight
    element.type = first & 0xffff;
    const uint32_t length = first >> 16;
    if (length > 4) reader.fail("a short element must hold at most 4 bytes; it says ", length);
    element.bytes = reader.take(length, "an element");
    padding = 4 - length;
  } else {
    element.type = first;
    const auto length = reader.number<uint32_t>("an element's length");
    element.bytes = reader.take(length, "an element");
    padding = element.type == kCompressed ? 0 : (8 - length % 8) % 8;
  }
  reader.take(std::min(padding, reader.left()), "padding");
  return element;
}

/// Converts one value; out of range is cut, as only a damaged file has such values.
template <class To, class From>
To converted(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (!(value >= static_cast<From>(std::numeric_limits<To>::lowest())))
      return std::numeric_limits<To>::lowest();
    if (value >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  }
  return static_cast<To>(value);
}

std::vector<uint8_t> convert(std::span<const uint8_t> bytes, DType from, DType to, bool swap) {
  const size_t count = bytes.size() / bytes_of(from);
  if (from == to && !swap) return {bytes.begin(), bytes.end()};
  std::vector<uint8_t> out(count * bytes_of(to));
  visit_dtype(from, [&](auto source) {
    visit_dtype(to, [&](auto target) {
      using S = decltype(source);
      using T = decltype(target);
      if constexpr (!std::is_class_v<S> && !std::is_class_v<T> && !std::is_same_v<S, bool> &&
                    !std::is_same_v<T, bool>) {
        for (size_t i = 0; i < count; ++i) {
          std::memcpy(&source, bytes.data() + i * sizeof(S), sizeof(S));
          target = converted<T>(swap ? swapped(source) : source);
          std::memcpy(out.data() + i * sizeof(T), &target, sizeof(T));
        }
      }
    });
  });
  return out;
}

/// What a packed element unpacks to, by the length that it begins with.
uint64_t bytes_inside(const std::string& where, std::span<const uint8_t> packed, bool big_endian) {
  const std::vector<uint8_t> start = unpack_start(packed, Packing::zlib, 8);
  if (start.size() < 8) return 8;  // damaged: unpack says how
  ByteReader reader(where, start, big_endian);
  const auto first = reader.number<uint32_t>("an element's type");
  if (first >> 16 != 0) return 8;  // a short element
  const uint64_t length = reader.number<uint32_t>("an element's length");
  return 8 + (length + 7) / 8 * 8;
}

/// The array in a matrix element, or nothing for a kind that is not a plain numeric array. `take(bytes)` is told before
/// memory is taken.
std::optional<MatArray> read_matrix(ByteReader reader, const std::function<void(uint64_t)>& take) {
  const Element flags = next_element(reader);
  if (flags.type != kUint32 || flags.bytes.size() != 8)
    reader.fail("a matrix must begin with its flags; it does not");
  ByteReader flag_reader(reader.where(), flags.bytes, reader.big_endian());
  const auto bits = flag_reader.number<uint32_t>("flags");
  const std::optional<DType> dtype = class_type(static_cast<uint8_t>(bits));
  const bool is_complex = bits & 0x0800;
  if (!dtype || is_complex) return std::nullopt;

  const Element axes = next_element(reader);
  if (axes.type != kInt32 || axes.bytes.size() % 4 != 0 || axes.bytes.size() / 4 > kMaxAxes ||
      axes.bytes.size() < 8)
    reader.fail("a matrix must have 2 to ", kMaxAxes, " sizes; its element has type ", axes.type, " and ",
                axes.bytes.size(), " bytes");
  MatArray array;
  array.dtype = *dtype;
  ByteReader axis_reader(reader.where(), axes.bytes, reader.big_endian());
  int64_t count = 1;
  while (axis_reader.left() > 0) {
    const auto size = axis_reader.number<int32_t>("a size");
    if (size < 0 || __builtin_mul_overflow(count, int64_t{size}, &count))
      reader.fail("the sizes of a matrix must be at least 0 and their product fit 63 bits; got ", size);
    array.sizes.push_back(size);
  }
  const Element name = next_element(reader);
  if (name.type != kInt8) reader.fail("a matrix must have a name; there is an element of type ", name.type);
  array.name.assign(name.bytes.begin(), name.bytes.end());
  const Element values = next_element(reader);
  const std::optional<DType> stored = stored_type(values.type);
  if (!stored) reader.fail("the values of a matrix must be numbers; their type is ", values.type);
  if (values.bytes.size() % bytes_of(*stored) != 0 ||
      static_cast<int64_t>(values.bytes.size() / bytes_of(*stored)) != count)
    reader.fail("the array '", one_line(array.name, 50), "' must have ", count, " values; it has ",
                values.bytes.size(), " bytes of ", *stored);
  take(static_cast<uint64_t>(count) * bytes_of(*dtype));
  array.values = convert(values.bytes, *stored, *dtype, reader.big_endian());
  return array;
}

}  // namespace

double MatArray::number(int64_t i) const {
  TD_CHECK(i >= 0 && i < count(), "number: the index must be 0 to ", count() - 1, "; got ", i, ".");
  return visit_dtype(dtype, [&](auto zero) -> double {
    std::memcpy(&zero, values.data() + static_cast<size_t>(i) * sizeof(zero), sizeof(zero));
    return static_cast<double>(zero);
  });
}

std::vector<MatArray> load_mat(const std::string& path, int64_t max_bytes) {
  const std::string where = str("load '", one_line(path), "': ");
  const std::vector<uint8_t> content = read_file("load", path, max_bytes);
  ByteReader reader(where, content);
  const std::span<const uint8_t> text = reader.take(116, "the text of a MAT file");
  const std::string_view begin(reinterpret_cast<const char*>(text.data()), 19);
  TD_CHECK(
      begin != "MATLAB 7.3 MAT-file", where,
      "must be a level-5 MAT file; it is version 7.3, which is HDF5. In MATLAB, save it again with -v7.");
  reader.take(8, "the header");
  const auto version = reader.number<uint16_t>("the version"),
             order = reader.number<uint16_t>("the byte order");
  if (order == 0x4d49 && version == 0x0100) {
    // little-endian
  } else if (order == 0x494d && version == 0x0001) {
    reader.set_big_endian(true);
  } else {
    reader.fail("must be a level-5 MAT file (its byte 124 on: 00 01 'IM'); it is not");
  }
  std::vector<MatArray> arrays;
  // Everything counts that is unpacked or converted, whether it is kept or not.
  uint64_t taken = 0;
  const auto take = [&](uint64_t bytes) {
    taken += bytes;
    check_unpacked(where, "the file", content.size(), taken, max_bytes);
  };
  const auto keep = [&](std::span<const uint8_t> matrix, uint64_t counted) {
    const auto take_more = [&](uint64_t bytes) { take(bytes > counted ? bytes - counted : 0); };
    if (std::optional<MatArray> array =
            read_matrix(ByteReader(where, matrix, reader.big_endian()), take_more))
      arrays.push_back(std::move(*array));
  };
  while (reader.left() > 0) {
    const Element element = next_element(reader);
    if (element.type == kMatrix) {
      keep(element.bytes, 0);
    } else if (element.type == kCompressed) {
      const uint64_t expected = bytes_inside(where, element.bytes, reader.big_endian());
      take(expected);
      const std::vector<uint8_t> unpacked =
          unpack(where, element.bytes, Packing::zlib, static_cast<int64_t>(expected),
                 static_cast<int64_t>(expected), content.size());
      ByteReader inner(where, unpacked, reader.big_endian());
      const Element inside = next_element(inner);
      if (inside.type == kMatrix) keep(inside.bytes, expected);
    }
  }
  return arrays;
}

}  // namespace tandem::io
