// Reading PyTorch's files: the archive, the names, the bytes.
#include "tandem/io/torch_file.h"

#include <algorithm>
#include <map>

#include "tandem/io/npy.h"
#include "tandem/io/torch_pickle.h"
#include "tandem/io/zip.h"

namespace tandem::io {

namespace {

using Kind = TorchPickle::Kind;

constexpr int kMaxDepth = 100;                   // of containers within each other
constexpr size_t kRowBytes = 64;                 // what a tensor counts besides its name
constexpr int64_t kBytesOfValue = 16;            // header_bytes of the limits, by value of the pickle
constexpr std::string_view kZipMark = "PK\3\4";  // of the first file in an archive
constexpr size_t kZipHeader = 30;
// The number that older files begin with, as a pickle.
constexpr std::string_view kOldMark = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// The first bytes of a file, fewer where it is shorter.
std::string first_bytes(const std::string& path, size_t bytes) {
  InputFile file("load", path);
  std::string text(std::min(bytes, static_cast<size_t>(file.bytes())), '\0');
  file.read(text.data(), text.size());
  return text;
}

/// Walks through the containers of a pickle and collects tensors with their dotted names. Containers may share parts, so
/// that a small pickle can stand for a tree without end: what is visited and what is named is counted.
class Names {
 public:
  Names(const std::string& where, const TorchPickle& pickle, size_t max_visits, size_t max_name_bytes)
      : where_(where), pickle_(pickle), max_visits_(max_visits), max_name_bytes_(max_name_bytes) {
    visit(pickle.root(), "", 0);
  }

  std::vector<std::pair<std::string, const TorchPickle::StoredTensor*>> rows;

 private:
  void visit(TorchPickle::Id id, const std::string& name, int depth) {
    TD_CHECK(++visits_ <= max_visits_, where_, "its containers must hold at most ", max_visits_,
             " values, counted wherever they are used; they hold more", kDamaged);
    TD_CHECK(name_bytes_ <= max_name_bytes_, where_, "the names of all tensors must take at most ",
             max_name_bytes_, " bytes; they take more", kDamaged);
    TD_CHECK(depth <= kMaxDepth, where_, "containers must lie at most ", kMaxDepth,
             " deep within each other; these lie deeper, or within themselves", kDamaged);
    const TorchPickle::Value& value = pickle_[id];
    switch (value.kind) {
      case Kind::tensor:
        name_bytes_ += name.size() + kRowBytes;
        rows.emplace_back(name, &pickle_.tensor(value));
        break;
      case Kind::dict:
        for (size_t i = 0; i < value.items.size(); i += 2)
          visit(value.items[i + 1], joined(name, key(pickle_[value.items[i]], name)), depth + 1);
        break;
      case Kind::list:
      case Kind::tuple:
        for (size_t i = 0; i < value.items.size(); ++i)
          visit(value.items[i], joined(name, str(i)), depth + 1);
        break;
      case Kind::name:
      case Kind::storage:
        throw Error(str(where_, "must hold nothing but tensors in dicts, lists and tuples; '",
                        one_line(name, 100), "' is a ", value.kind == Kind::name ? value.text : "storage",
                        ". Save the weights alone: torch.save(model.state_dict(), path)."));
      default:
        break;  // numbers and strings beside the weights
    }
  }

  std::string joined(const std::string& name, const std::string& key) const {
    constexpr size_t kLongest = 4096;
    TD_CHECK(name.size() + key.size() < kLongest, where_, "names must take at most ", kLongest,
             " bytes; one takes ", name.size() + key.size() + 1, kDamaged);
    return name.empty() ? key : str(name, ".", key);
  }

  std::string key(const TorchPickle::Value& value, const std::string& of) const {
    if (value.kind == Kind::text) return std::string(value.text.substr(0, 4097));
    TD_CHECK(value.kind == Kind::integer, where_, "the keys of a dict must be strings or integers; one of '",
             one_line(of, 100),
             "' is neither. Save the weights alone: torch.save(model.state_dict(), path).");
    return str(value.number);
  }

  const std::string& where_;
  const TorchPickle& pickle_;
  size_t max_visits_, max_name_bytes_, visits_ = 0, name_bytes_ = 0;
};

/// How many bytes a tensor takes in row-major order. Refuses one that leaves its storage.
uint64_t checked_bytes(const std::string& where, const TorchPickle& pickle,
                       const TorchPickle::StoredTensor& tensor) {
  const TorchPickle::Storage& storage = pickle.storage(tensor);
  const uint64_t held = storage.has_type ? storage.count : storage.count / bytes_of(tensor.dtype);
  constexpr uint64_t kMost = uint64_t{1} << 60;  // elements of any tensor
  int64_t last = tensor.offset;                  // the furthest element
  uint64_t count = 1;
  bool fits = true, is_empty = false;
  for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
    // Sizes of 0 count as 1 here, so that the strides of the result fit too.
    const int64_t size = std::max<int64_t>(tensor.shape[axis], 1);
    is_empty = is_empty || tensor.shape[axis] == 0;
    int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(count, static_cast<uint64_t>(size), &count) && count < kMost &&
           !__builtin_mul_overflow(size - 1, tensor.strides[axis], &reach) &&
           !__builtin_add_overflow(last, reach, &last);
  }
  if (fits && is_empty) return 0;
  TD_CHECK(fits && static_cast<uint64_t>(last) < held, where, "a tensor must lie within its storage of ",
           held, " elements; got offset ", tensor.offset, ", shape ", tensor.shape, " and strides ",
           tensor.strides, kDamaged);
  return count * bytes_of(tensor.dtype);
}

/// Copies elements with strides into row-major order.
template <class Word>
void gather(const uint8_t* from, uint8_t* to, const Dims& shape, const Dims& strides) {
  constexpr auto kWidth = static_cast<Dim>(sizeof(Word));
  Dims index = Dims::filled(shape.rank(), 0);
  const Dim size = size_of(shape);
  Dim at = 0;
  for (Dim n = 0; n < size; ++n) {
    std::memcpy(to + n * kWidth, from + at * kWidth, sizeof(Word));
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      at += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= shape[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

bool is_row_major(const Dims& shape, const Dims& strides) {
  Dim expected = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] != 1 && strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

void read_tensor(const std::string& where, std::span<const uint8_t> storage,
                 const TorchPickle::StoredTensor& from, const Tensor& to) {
  const size_t width = bytes_of(from.dtype), bytes = static_cast<size_t>(to.size()) * width;
  if (bytes == 0) return;
  const uint8_t* begin = storage.data() + static_cast<size_t>(from.offset) * width;
  auto* out = static_cast<uint8_t*>(to.raw());
  if (is_row_major(from.shape, from.strides))
    std::memcpy(out, begin, bytes);
  else
    visit_width(width, [&](auto word) { gather<decltype(word)>(begin, out, from.shape, from.strides); });
  TD_CHECK(from.dtype != DType::boolean || std::all_of(out, out + bytes, [](uint8_t b) { return b <= 1; }),
           where, "the elements of a bool tensor must be 0 or 1; some are not", kDamaged);
}

}  // namespace

NamedTensors load_torch(const std::string& path) {
  const std::string where = str("load '", one_line(path), "': ");
  const std::string mark = first_bytes(path, kZipMark.size());
  TD_CHECK(
      !mark.starts_with("\x80"), where,
      "must be of the format of PyTorch 1.6 or later, a zip archive; it is of the older one (or of "
      "_use_new_zipfile_serialization=False). Convert it in Python: torch.save(torch.load(path), new_path).");
  TD_CHECK(mark == kZipMark, where, "must be a zip archive, as torch.save writes it; it is not", kDamaged);
  const ZipReader zip("load", path);
  std::map<std::string_view, const ZipReader::Entry*> entries;
  std::string root;
  for (const ZipReader::Entry& entry : zip.entries()) {
    TD_CHECK(entries.emplace(entry.name, &entry).second, where,
             "every file of the archive must have its own name; '", one_line(entry.name, 100),
             "' is there twice", kDamaged);
    const size_t slash = entry.name.find('/');
    if (slash != std::string::npos && entry.name.substr(slash) == "/data.pkl")
      root = entry.name.substr(0, slash + 1);
  }
  const auto find = [&](const std::string& name) {
    const auto found = entries.find(root + name);
    return found == entries.end() ? nullptr : found->second;
  };
  TD_CHECK(!root.empty(), where, "must hold a data.pkl, as torch.save writes it; it holds ", entries.size(),
           " other files. It may be an npz file (load_npz) or not a file of weights.");
  TD_CHECK(!find("constants.pkl"), where,
           "must be a file of torch.save; it is TorchScript, a program. Save the weights alone: "
           "torch.save(model.state_dict(), path).");
  if (const ZipReader::Entry* order = find("byteorder")) {
    const std::vector<uint8_t> text = zip.read(*order);
    TD_CHECK(std::string(text.begin(), text.end()) == "little", where,
             "must hold little-endian numbers; its byteorder is '",
             one_line(std::string(text.begin(), text.end()), 20),
             "'. Save it again on a little-endian machine.");
  }

  const ReadingLimits limits = reading_limits();
  const ZipReader::Entry& pickled = *find("data.pkl");
  TD_CHECK(pickled.bytes <= static_cast<uint64_t>(limits.header_bytes), where, "data.pkl must take at most ",
           limits.header_bytes, " bytes; it takes ", pickled.bytes,
           ". Where you trust the file, raise the limit (TANDEM_READING_LIMITS=header_bytes=…).");
  const std::vector<uint8_t> bytes = zip.read(pickled);
  const auto most = static_cast<size_t>(std::max<int64_t>(limits.header_bytes / kBytesOfValue, 1));
  const TorchPickle pickle(where, bytes, most);
  Names names(where, pickle, most, static_cast<size_t>(limits.header_bytes));

  // Each storage is read once, and one at a time.
  uint64_t total = 0;
  std::map<std::string_view, std::vector<size_t>> by_storage;
  for (size_t i = 0; i < names.rows.size(); ++i) {
    const TorchPickle::StoredTensor& tensor = *names.rows[i].second;
    const uint64_t taken = checked_bytes(where, pickle, tensor);
    if (__builtin_add_overflow(total, taken, &total)) total = UINT64_MAX;
    by_storage[pickle.storage(tensor).key].push_back(i);
  }
  check_unpacked(where, "its tensors", zip.archive_bytes(), total, limits.bytes);
  NamedTensors tensors;
  for (const auto& [name, tensor] : names.rows)
    tensors.emplace_back(name, empty(tensor->shape, tensor->dtype));
  for (const auto& [key, rows] : by_storage) {
    const ZipReader::Entry* entry = find(str("data/", key));
    TD_CHECK(entry, where, "must hold every storage; '", one_line(root + "data/" + std::string(key), 100),
             "' is missing", kDamaged);
    for (const size_t i : rows) {
      const TorchPickle::Storage& storage = pickle.storage(*names.rows[i].second);
      const size_t width = storage.has_type ? bytes_of(storage.dtype) : 1;
      TD_CHECK(storage.count <= entry->bytes / width, where, "the storage '", one_line(entry->name, 100),
               "' must have ", storage.count, " elements of ", width, " bytes; it has ", entry->bytes,
               " bytes", kDamaged);
    }
    const std::vector<uint8_t> storage = zip.read(*entry);
    for (const size_t i : rows) read_tensor(where, storage, *names.rows[i].second, tensors[i].second);
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 1; i < tensors.size(); ++i)
    TD_CHECK(tensors[i].first != tensors[i - 1].first, where, "names must be unique; got '",
             one_line(tensors[i].first, 100), "' twice", kDamaged);
  return tensors;
}

NamedTensors load_weights(const std::string& path) {
  constexpr size_t kLongName = 1000;
  const std::string begin = first_bytes(path, kZipHeader + kLongName);
  if (begin.starts_with(kZipMark) && begin.size() > kZipHeader) {
    uint16_t name_bytes;
    std::memcpy(&name_bytes, begin.data() + 26, sizeof(name_bytes));
    return begin.substr(kZipHeader, name_bytes).ends_with(".npy") ? load_npz(path) : load_torch(path);
  }
  return begin.starts_with(kOldMark) ? load_torch(path) : load_safetensors(path).tensors;
}

}  // namespace tandem::io
