// The npy format: a magic number, a version, the length of a header, the header (a Python dictionary as text), the
// values.
#include "tandem/io/npy.h"

#include <algorithm>
#include <set>

#include "tandem/io/byte_reader.h"
#include "tandem/io/file.h"
#include "tandem/io/zip.h"

namespace tandem::io {

namespace {

constexpr uint8_t kMagic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
constexpr size_t kMaxHeader = 65536;

struct Header {
  std::string type;  // "<f4"
  bool fortran_order = false;
  Dims shape;
};

/// Reads the Python dictionary of a header: three keys, each once.
class HeaderText {
 public:
  HeaderText(const ByteReader& reader, std::string_view text) : reader_(reader), text_(text) {}

  Header parse() {
    Header header;
    std::set<std::string> seen;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted("a key");
      expect(':');
      if (!seen.insert(key).second) reader_.fail("the header must have each key once; got '", key, "' twice");
      if (key == "descr")
        header.type = peek() == '[' ? std::string("a record") : quoted("descr");
      else if (key == "fortran_order")
        header.fortran_order = boolean();
      else if (key == "shape")
        header.shape = shape();
      else
        reader_.fail("the header must have the keys descr, fortran_order and shape; got '", one_line(key, 50),
                     "'");
      if (header.type == "a record")
        throw Error(str(reader_.where(),
                        "must be an array of numbers; it holds records. Save its columns one by one."));
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (peek() != 0) reader_.fail("the header must end after its dictionary; there is more");
    if (seen.size() != 3)
      reader_.fail("the header must have the keys descr, fortran_order and shape; some are missing");
    return header;
  }

 private:
  /// The next character that is not a space, or 0 at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted))
      reader_.fail("the header must have a '", wanted, "' at its byte ", at_, "; it has not");
  }
  std::string quoted(const char* what) {
    const char mark = peek();
    if (mark != '\'' && mark != '"')
      reader_.fail("the header must have ", what, " in quotes at its byte ", at_);
    const size_t end = text_.find(mark, at_ + 1);
    if (end == std::string_view::npos) reader_.fail("the header must close its quotes; it does not");
    std::string inside(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return inside;
  }
  bool boolean() {
    peek();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += std::string_view(word).size();
        return value;
      }
    reader_.fail("fortran_order must be True or False; it is neither");
  }
  Dims shape() {
    Dims dims;
    expect('(');
    while (!accept(')')) {
      Dim size = 0;
      bool any = false;
      for (char c = peek(); c >= '0' && c <= '9'; c = at_ < text_.size() ? text_[at_] : '\0', any = true) {
        if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, c - '0', &size))
          reader_.fail("the sizes of the shape must fit 63 bits; one does not");
        ++at_;
      }
      if (!any) reader_.fail("the shape must be a tuple of sizes of at least 0; it is not");
      accept('L');  // Python 2 wrote long integers so
      if (dims.rank() == kMaxRank)
        reader_.fail("the shape must have at most ", kMaxRank, " axes; it has more");
      dims.push_back(size);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }

  const ByteReader& reader_;
  std::string_view text_;
  size_t at_ = 0;
};

/// The code of a type without its byte order, e.g. "f4"; "" for one that NumPy lacks.
std::string code_of(DType dtype) {
  if (dtype == DType::bf16) return "";
  const char kind = dtype == DType::boolean ? 'b' : is_floating(dtype) ? 'f' : name(dtype)[0];
  return str(kind, bytes_of(dtype));
}

DType dtype_of_code(const ByteReader& reader, const std::string& type) {
  if (type.size() >= 2 && std::string_view("<>|=").find(type[0]) != std::string_view::npos)
    for (int i = 0; i < kDTypeCount; ++i)
      if (code_of(static_cast<DType>(i)) == type.substr(1)) return static_cast<DType>(i);
  const char kind = type.size() >= 2 ? type[1] : '\0';
  const char* of = kind == 'O'                  ? "Python objects"
                   : kind == 'c'                ? "complex numbers"
                   : kind == 'U' || kind == 'S' ? "strings"
                   : kind == 'M' || kind == 'm' ? "times"
                                                : "an unknown type";
  throw Error(str(reader.where(),
                  "must be an array of booleans, integers or floats of up to 64 bits; it holds ", of, " ('",
                  one_line(type, 20), "'). Convert it with astype() and save it again."));
}

/// Copies elements that lie in Fortran order into C order.
template <class Word>
void from_fortran(const uint8_t* from, uint8_t* to, const Dims& shape) {
  const int rank = shape.rank();
  Dims index = Dims::filled(rank, 0), strides = shape;
  Dim stride = 1;
  for (int axis = 0; axis < rank; ++axis) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  Dim at = 0;
  for (Dim n = 0; n < stride; ++n) {
    std::memcpy(to + n * static_cast<Dim>(sizeof(Word)), from + at * static_cast<Dim>(sizeof(Word)),
                sizeof(Word));
    for (int axis = rank - 1; axis >= 0; --axis) {
      at += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= shape[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

Tensor parse_npy(const std::string& where, std::span<const uint8_t> content) {
  ByteReader reader(where, content);
  const std::span<const uint8_t> magic = reader.take(sizeof(kMagic), "the magic number");
  if (!std::equal(magic.begin(), magic.end(), kMagic)) reader.fail("must begin as npy files do; it does not");
  const auto major = reader.number<uint8_t>("the version"), minor = reader.number<uint8_t>("the version");
  if (major < 1 || major > 3) reader.fail("the version must be 1 to 3; got ", int{major}, ".", int{minor});
  const uint32_t header_bytes = major == 1 ? reader.number<uint16_t>("the header's length")
                                           : reader.number<uint32_t>("the header's length");
  if (header_bytes > kMaxHeader)
    reader.fail("the header must take at most ", kMaxHeader, " bytes; got ", header_bytes);
  const std::span<const uint8_t> text = reader.take(header_bytes, "the header");
  const Header header = HeaderText(reader, {reinterpret_cast<const char*>(text.data()), text.size()}).parse();
  const DType dtype = dtype_of_code(reader, header.type);
  const size_t width = bytes_of(dtype);
  // Sizes of 0 count as 1 here, so that the strides fit too.
  uint64_t bytes = width;
  for (Dim size : header.shape)
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(std::max<Dim>(size, 1)), &bytes) ||
        bytes > uint64_t{INT64_MAX})
      reader.fail("the size of the array must fit 63 bits; its shape is ", header.shape);
  if (size_of(header.shape) == 0) bytes = 0;
  if (bytes != reader.left())
    reader.fail("an array of ", dtype, " ", header.shape, " takes ", bytes, " bytes; there are ",
                reader.left());
  Tensor tensor = empty(header.shape, dtype);
  if (bytes == 0) return tensor;
  const std::span<const uint8_t> values = reader.take(bytes, "the values");
  auto* to = static_cast<uint8_t*>(tensor.raw());
  if (header.fortran_order && header.shape.rank() > 1)
    visit_width(width, [&](auto word) { from_fortran<decltype(word)>(values.data(), to, header.shape); });
  else
    std::memcpy(to, values.data(), values.size());
  if (header.type[0] == '>')
    visit_width(width, [&](auto word) {
      for (size_t at = 0; at < values.size(); at += sizeof(word)) {
        std::memcpy(&word, to + at, sizeof(word));
        word = swapped(word);
        std::memcpy(to + at, &word, sizeof(word));
      }
    });
  if (dtype == DType::boolean && std::any_of(to, to + bytes, [](uint8_t byte) { return byte > 1; }))
    reader.fail("booleans must be 0 or 1; some are not");
  return tensor;
}

/// Everything that stands before the values.
std::string npy_header(const std::string& where, const Tensor& tensor) {
  TD_CHECK(tensor.defined(), where, "the tensor must be defined.");
  const std::string code = code_of(tensor.dtype());
  TD_CHECK(!code.empty(), where, "the type must be one that NumPy has; got ", tensor.dtype(),
           ". Cast it to f32 first.");
  std::string shape;
  for (Dim size : tensor.shape()) shape += str(shape.empty() ? "" : " ", size, ",");
  if (tensor.rank() > 1) shape.pop_back();
  std::string text = str("{'descr': '", bytes_of(tensor.dtype()) == 1 ? '|' : '<', code,
                         "', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr size_t kBefore = sizeof(kMagic) + 4, kAlign = 64;
  const size_t whole = (kBefore + text.size() + 1 + kAlign - 1) / kAlign * kAlign;
  text.resize(whole - kBefore - 1, ' ');
  text += '\n';
  std::string header(kMagic, kMagic + sizeof(kMagic));
  header += {1, 0, static_cast<char>(text.size() & 255), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace

Tensor load_npy(const std::string& path) {
  return parse_npy(str("load '", one_line(path), "': "), read_file("load", path));
}

NamedTensors load_npz(const std::string& path) {
  const ZipReader zip("load", path);
  NamedTensors tensors;
  for (const ZipReader::Entry& entry : zip.entries()) {
    std::string name = entry.name;
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    const std::string where = str("load '", one_line(path), "': '", one_line(name, 100), "': ");
    tensors.emplace_back(name, parse_npy(where, zip.read(entry)));
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 1; i < tensors.size(); ++i)
    TD_CHECK(tensors[i].first != tensors[i - 1].first, "load '", one_line(path),
             "': names must be unique; got '", one_line(tensors[i].first, 100), "' twice", kDamaged);
  return tensors;
}

void save_npy(const std::string& path, const Tensor& tensor) {
  const std::string header = npy_header(str("save '", one_line(path), "': "), tensor);
  const std::vector<std::byte> bytes = host_bytes(tensor);
  write_atomically(path, [&](OutputFile& out) {
    out.write(header);
    out.write(bytes.data(), bytes.size());
  });
}

void save_npz(const std::string& path, const NamedTensors& tensors, bool compressed) {
  std::vector<std::string> headers;
  std::vector<std::vector<std::byte>> values;
  std::set<std::string> names;
  std::vector<ZipItem> items;
  for (const auto& [name, tensor] : tensors) {
    const std::string where = str("save '", one_line(path), "': '", one_line(name, 100), "': ");
    TD_CHECK(names.insert(name).second, where, "names must be unique; got it twice.");
    headers.push_back(npy_header(where, tensor));
    values.push_back(host_bytes(tensor));
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    items.push_back({tensors[i].first + ".npy",
                     {{reinterpret_cast<const uint8_t*>(headers[i].data()), headers[i].size()},
                      {reinterpret_cast<const uint8_t*>(values[i].data()), values[i].size()}}});
  write_zip(path, items, compressed);
}

}  // namespace tandem::io
