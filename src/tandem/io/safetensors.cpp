// Reading and writing safetensors. The reader trusts nothing: every length is compared with the size of the
// file before memory is asked for, and the tensors' byte ranges must cover the data exactly once.
#include "tandem/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>

#include "tandem/io/file.h"
#include "tandem/io/json.h"
#include "tandem/io/sha256.h"

namespace tandem::io {

static_assert(std::endian::native == std::endian::little, "the bytes of tensors are written as they lie");

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kMetadataKey = "__metadata__";

/// A name from a file, as a message shows it.
std::string shown(std::string_view name) { return one_line(name, 100); }

/// The indices of `tensors` in the order of their names. Refuses two of one name and undefined tensors.
std::vector<size_t> name_order(const char* what, const NamedTensors& tensors) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].first < tensors[b].first; });
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& [name, tensor] = tensors[order[i]];
    TD_CHECK(tensor.defined(), what, ": every tensor must be defined; '", shown(name), "' is not.");
    TD_CHECK(i == 0 || tensors[order[i - 1]].first != name, what, ": names must be unique; got '",
             shown(name), "' twice.");
  }
  return order;
}

/// Calls use(pointer, bytes) with a tensor's bytes on the host in logical order, without a copy where
/// possible.
template <class F>
void with_bytes(const Tensor& tensor, F&& use) {
  if (tensor.device().is_cpu() && tensor.is_contiguous()) {
    use(tensor.raw(), static_cast<size_t>(tensor.size()) * bytes_of(tensor.dtype()));
  } else {
    const std::vector<std::byte> bytes = host_bytes(tensor);
    use(bytes.data(), bytes.size());
  }
}

std::optional<DType> dtype_named(const std::string& text) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (text == info(static_cast<DType>(i)).safetensors_name) return static_cast<DType>(i);
  return std::nullopt;
}

/// One tensor as the header describes it. Bytes count from the start of the data.
struct Entry {
  std::string name;
  DType dtype;
  Dims shape;
  uint64_t begin, end;
};

/// Checks a header and turns it into entries. `fail(parts…)` throws.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(str("load '", one_line(path_), "': ", parts...,
                    ". The file is damaged or not safetensors: save or fetch it again."));
  }

  void parse(const std::vector<char>& text) {
    std::string why;
    const json header = try_parse_json<json>({text.data(), text.size()}, why);
    if (header.is_discarded()) fail("the header ", why);
    if (!header.is_object()) fail("the header must be a JSON object; got ", header.type_name());
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadataKey)
        read_metadata(value);
      else
        entries.push_back(read_entry(name, value));
    }
  }

  /// The ranges, in order, must follow each other from 0 to the end of the data.
  void check_cover(uint64_t data_bytes) const {
    std::vector<const Entry*> order;
    for (const Entry& entry : entries) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    uint64_t at = 0;
    for (const Entry* entry : order) {
      if (entry->end > data_bytes)
        fail("the bytes of '", shown(entry->name), "' must lie within the ", data_bytes,
             " bytes of data; got ", entry->begin, " to ", entry->end);
      if (entry->begin != at)
        fail("the tensors must cover the data without gap or overlap; '", shown(entry->name), "' begins at ",
             entry->begin, " where ", at, " was expected");
      at = entry->end;
    }
    if (at != data_bytes)
      fail("the tensors must cover the data; they end at ", at, " of ", data_bytes, " bytes");
  }

  std::vector<Entry> entries;  // sorted by name, as JSON objects are held sorted
  Metadata metadata;

 private:
  void read_metadata(const json& value) {
    if (!value.is_object()) fail("__metadata__ must be an object; got ", value.type_name());
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string())
        fail("__metadata__ must map names to strings; '", shown(key), "' is ", text.type_name());
      metadata[key] = text.get<std::string>();
    }
  }

  Entry read_entry(const std::string& name, const json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets"))
      fail("'", shown(name), "' must have dtype, shape and data_offsets and nothing else");
    const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
    if (!dtype.is_string())
      fail("the dtype of '", shown(name), "' must be a string; got ", dtype.type_name());
    const std::optional<DType> type = dtype_named(dtype.get<std::string>());
    if (!type)
      fail("the dtype of '", shown(name), "' is not known; got '", shown(dtype.get<std::string>()), "'");
    const auto all_sizes = [](const json& list) {
      return list.is_array() && std::all_of(list.begin(), list.end(), [](const json& n) {
               return n.is_number_unsigned() && n.get<uint64_t>() <= uint64_t{INT64_MAX};
             });
    };
    if (!all_sizes(shape)) fail("the shape of '", shown(name), "' must be a list of sizes of at least 0");
    if (shape.size() > kMaxRank)
      fail("the shape of '", shown(name), "' must have at most ", kMaxRank, " axes; got ", shape.size());
    if (!all_sizes(offsets) || offsets.size() != 2)
      fail("the data_offsets of '", shown(name), "' must be two numbers of at least 0");

    Entry entry{name, *type, {}, offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
    // Sizes of 0 count as 1 here, so that the strides fit too.
    uint64_t bytes = bytes_of(*type);
    for (const json& n : shape) {
      entry.shape.push_back(n.get<int64_t>());
      if (__builtin_mul_overflow(bytes, std::max<uint64_t>(n.get<uint64_t>(), 1), &bytes) ||
          bytes > uint64_t{INT64_MAX})
        fail("the size of '", shown(name), "' must fit 63 bits");
    }
    if (size_of(entry.shape) == 0) bytes = 0;
    if (entry.end < entry.begin || entry.end - entry.begin != bytes)
      fail("'", shown(name), "' is ", *type, " ", entry.shape, ", which takes ", bytes,
           " bytes; its data_offsets are ", entry.begin, " and ", entry.end);
    return entry;
  }

  const std::string& path_;
};

}  // namespace

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  const std::string what = str("save '", one_line(path), "'");
  const std::vector<size_t> order = name_order(what.c_str(), tensors);
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  uint64_t at = 0;
  for (size_t i : order) {
    const auto& [name, tensor] = tensors[i];
    TD_CHECK(name != kMetadataKey, what, ": ", kMetadataKey, " is not a name for a tensor. Rename it.");
    const uint64_t end = at + static_cast<uint64_t>(tensor.size()) * bytes_of(tensor.dtype());
    header[name] = {{"dtype", info(tensor.dtype()).safetensors_name},
                    {"shape", std::vector<Dim>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    throw Error(what + ": names and metadata must be UTF-8; got other bytes. Rename the tensor.");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto most = static_cast<uint64_t>(reading_limits().header_bytes);
  TD_CHECK(text.size() <= most, what, ": the header must take at most ", most, " bytes; got ", text.size(),
           ". Save fewer tensors or less metadata, or raise the limit "
           "(TANDEM_READING_LIMITS=header_bytes=…).");

  write_atomically(path, [&](OutputFile& out) {
    const uint64_t header_bytes = text.size();
    out.write(&header_bytes, sizeof(header_bytes));
    out.write(text);
    for (size_t i : order)
      with_bytes(tensors[i].second, [&](const void* data, size_t bytes) { out.write(data, bytes); });
  });
}

const Tensor* SafetensorsFile::find(std::string_view name) const {
  const auto at =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const auto& row, std::string_view wanted) { return row.first < wanted; });
  return at != tensors.end() && at->first == name ? &at->second : nullptr;
}

SafetensorsFile load_safetensors(const std::string& path) {
  InputFile file("load", path);
  HeaderReader reader(path);
  const auto file_bytes = static_cast<uint64_t>(file.bytes());
  uint64_t header_bytes = 0;
  if (file_bytes < sizeof(header_bytes))
    reader.fail("the file must begin with 8 bytes of header length; it holds ", file_bytes, " bytes");
  file.read(&header_bytes, sizeof(header_bytes));
  if (header_bytes > file_bytes - sizeof(header_bytes))
    reader.fail("the header must fit the file of ", file_bytes, " bytes; its length says ", header_bytes);
  const auto most = static_cast<uint64_t>(reading_limits().header_bytes);
  TD_CHECK(header_bytes <= most, "load '", one_line(path), "': the header must take at most ", most,
           " bytes; its length says ", header_bytes,
           ". Where you trust the file, raise the limit (TANDEM_READING_LIMITS=header_bytes=…).");
  std::vector<char> text(header_bytes);
  file.read(text.data(), text.size());
  if (text.empty() || text[0] != '{') reader.fail("the header must begin with '{'");
  reader.parse(text);
  reader.check_cover(file_bytes - sizeof(header_bytes) - header_bytes);

  // The ranges follow each other, so reading them in order of their begin needs no seeking.
  SafetensorsFile result;
  result.metadata = std::move(reader.metadata);
  std::vector<size_t> order(reader.entries.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return reader.entries[a].begin < reader.entries[b].begin; });
  for (const Entry& entry : reader.entries)
    result.tensors.emplace_back(entry.name, empty(entry.shape, entry.dtype));
  for (size_t i : order) {
    const Entry& entry = reader.entries[i];
    if (entry.end == entry.begin) continue;
    auto* to = static_cast<uint8_t*>(result.tensors[i].second.raw());
    file.read(to, entry.end - entry.begin);
    if (entry.dtype == DType::boolean &&
        std::any_of(to, to + (entry.end - entry.begin), [](uint8_t byte) { return byte > 1; }))
      reader.fail("the elements of '", shown(entry.name), "' must be 0 or 1, as it is bool");
  }
  return result;
}

std::string weights_sha256(const NamedTensors& tensors) {
  Sha256 sum;
  for (size_t i : name_order("weights_sha256", tensors))
    with_bytes(tensors[i].second, [&](const void* data, size_t bytes) { sum.update(data, bytes); });
  return sum.hex();
}

}  // namespace tandem::io
