// Samples, weights and the hash.
#include "inputs.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

namespace libtorch_driver {
namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

int64_t product(const std::vector<int64_t>& shape, size_t begin = 0) {
  int64_t all = 1;
  for (size_t i = begin; i < shape.size(); ++i) all *= shape[i];
  return all;
}

struct Array {
  std::string dtype;
  std::vector<int64_t> shape;
  size_t offset = 0;  // of the first number in the file
};

/// The head of a NumPy file: a magic number, the length of a Python dict, and the dict.
Array numpy_head(const std::string& what, const MappedFile& file) {
  const auto wrong = [&](const std::string& why) {
    return std::runtime_error(what + ": must be a NumPy file; " + why + ".");
  };
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  if (file.bytes() < 12 || std::memcmp(bytes, "\x93NUMPY", 6) != 0) throw wrong("its first bytes are others");
  const bool wide = bytes[6] >= 2;  // versions 2 and 3 have four bytes of length
  const size_t begin = wide ? 12 : 10;
  size_t length = bytes[8] | bytes[9] << 8;
  if (wide) length |= static_cast<size_t>(bytes[10]) << 16 | static_cast<size_t>(bytes[11]) << 24;
  if (begin + length > file.bytes()) throw wrong("its head is cut off");
  const std::string head(file.data() + begin, length);
  Array array;
  array.offset = begin + length;
  const size_t descr = head.find("'descr':"), shape = head.find("'shape':");
  if (descr == std::string::npos || shape == std::string::npos) throw wrong("its head has no descr or shape");
  if (head.find("'fortran_order': True") != std::string::npos)
    throw wrong("its numbers are in Fortran's order");
  const size_t quote = head.find('\'', descr + 8);
  array.dtype = head.substr(quote + 1, head.find('\'', quote + 1) - quote - 1);
  const size_t open = head.find('(', shape), close = head.find(')', shape);
  if (open == std::string::npos || close == std::string::npos) throw wrong("its shape cannot be read");
  for (size_t at = open + 1; at < close;) {
    if (std::isdigit(static_cast<unsigned char>(head[at])) == 0) {
      ++at;
      continue;
    }
    size_t used = 0;
    array.shape.push_back(std::stoll(head.substr(at, close - at), &used));
    at += used;
  }
  return array;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) {
    const int code = errno;
    if (file >= 0) ::close(file);
    throw std::runtime_error("'" + path + "' cannot be read: " + std::strerror(code) + ".");
  }
  bytes_ = static_cast<size_t>(status.st_size);
  void* mapped = bytes_ ? ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  ::close(file);
  if (mapped == MAP_FAILED) throw std::runtime_error("'" + path + "' cannot be mapped into memory.");
  data_ = static_cast<char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, bytes_);
}

Samples::Samples(const std::string& what, const std::map<std::string, std::string>& paths,
                 const std::vector<Column>& columns) {
  for (const Column& column : columns) {
    const std::string full = what + "." + column.name;
    const auto path = paths.find(column.name);
    if (path == paths.end()) throw std::runtime_error(full + ": must be the path of a NumPy file; got none.");
    Part part;
    part.file = std::make_unique<MappedFile>(path->second);
    const Array array = numpy_head(full, *part.file);
    std::vector<int64_t> expected = column.shape;
    expected.insert(expected.begin(), array.shape.empty() ? 0 : array.shape[0]);
    const std::string dtype = column.type == "f32" ? "<f4" : "<i8";
    if (array.dtype != dtype || array.shape != expected || expected[0] == 0)
      throw std::runtime_error(full + ": must be " + dtype + " with at least one sample of sizes " +
                               text_of(column.shape) + "; got " + array.dtype + " " + text_of(array.shape) +
                               ".");
    if (size_ == 0) size_ = expected[0];
    if (expected[0] != size_)
      throw std::runtime_error(full + ": must have as many samples as " + what + "." + columns[0].name +
                               ", " + std::to_string(size_) + "; got " + std::to_string(expected[0]) + ".");
    part.bytes = static_cast<size_t>(product(column.shape)) * (column.type == "f32" ? 4 : 8);
    if (part.file->bytes() < array.offset + part.bytes * static_cast<size_t>(size_))
      throw std::runtime_error(full + ": the file is shorter than its head says.");
    part.data = part.file->data() + array.offset;
    for (int64_t i = 0; column.bounded && i < size_ * product(column.shape); ++i) {
      int64_t number = 0;
      std::memcpy(&number, part.data + 8 * i, 8);
      if (number < column.least || number > column.most)
        throw std::runtime_error(full + ": must be in " + std::to_string(column.least) + " … " +
                                 std::to_string(column.most) + "; got " + std::to_string(number) + ".");
    }
    parts_.emplace(column.name, std::move(part));
  }
}

void Samples::batch(const std::string& name, int64_t index, int64_t batch, const std::vector<int64_t>* order,
                    void* to) const {
  const Part& part = parts_.at(name);
  for (int64_t j = 0; j < batch; ++j) {
    const int64_t place = (index * batch + j) % size_;
    const auto sample = static_cast<size_t>(order ? (*order)[static_cast<size_t>(place)] : place);
    std::memcpy(static_cast<char*>(to) + static_cast<size_t>(j) * part.bytes, part.data + sample * part.bytes,
                part.bytes);
  }
}

uint32_t hashed(uint32_t index, int64_t seed) {
  uint32_t h = index * 0x9E3779B1u + static_cast<uint32_t>(seed) * 0x7F4A7C15u;
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

std::vector<int64_t> epoch_order(int64_t samples, int64_t seed, int64_t epoch) {
  std::vector<uint32_t> keys(static_cast<size_t>(samples));
  for (size_t i = 0; i < keys.size(); ++i)
    keys[i] = hashed(static_cast<uint32_t>(i), seed + 7919 * (epoch + 1));
  std::vector<int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
  });
  return order;
}

Weights hash_weights(const Shapes& shapes, int64_t seed) {
  Weights weights;
  int64_t number = 0;
  for (const auto& [name, shape] : shapes) {  // a map: in alphabetical order
    const bool vector = shape.size() < 2;
    const float width =
        vector ? 0.05f : static_cast<float>(std::sqrt(6.0 / static_cast<double>(product(shape, 1))));
    const float centre = vector && name.size() >= 6 && name.substr(name.size() - 6) == "weight" ? 1.0f : 0.0f;
    std::vector<float> numbers(static_cast<size_t>(product(shape)));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float unit = static_cast<float>(hashed(static_cast<uint32_t>(i), seed + number) >> 8) * 0x1p-24f;
      numbers[i] = (unit - 0.5f) * 2.0f * width + centre;
    }
    weights.emplace(name, std::move(numbers));
    ++number;
  }
  return weights;
}

Weights read_weights(const std::string& path, const Shapes& shapes) {
  const MappedFile file(path);
  uint64_t length = 0;
  if (file.bytes() >= 8) std::memcpy(&length, file.data(), 8);
  if (file.bytes() < 8 || length > file.bytes() - 8)
    throw std::runtime_error("weights.file: the header must fit into the file; '" + path +
                             "' is no safetensors file.");
  const auto header = nlohmann::json::parse(file.data() + 8, file.data() + 8 + length);
  const size_t body = 8 + length;
  Weights weights;
  for (const auto& [name, entry] : header.items()) {
    const bool running = name.find("running_") != std::string::npos;
    const auto wanted = shapes.find(name);
    if (name == "__metadata__" || name.find("num_batches_tracked") != std::string::npos) continue;
    if (wanted == shapes.end() && !running)
      throw std::runtime_error("weights.file: has " + name + ", which the model has not.");
    const auto shape = entry.at("shape").get<std::vector<int64_t>>();
    if (wanted != shapes.end() && wanted->second != shape)
      throw std::runtime_error("weights.file: " + name + " is " + text_of(shape) + " in the file and " +
                               text_of(wanted->second) + " in the model.");
    const auto begin = entry.at("data_offsets").at(0).get<size_t>();
    const auto end = entry.at("data_offsets").at(1).get<size_t>();
    const auto bytes = static_cast<size_t>(product(shape)) * sizeof(float);
    if (entry.at("dtype") != "F32" || begin > end || end - begin != bytes || end > file.bytes() - body)
      throw std::runtime_error("weights.file: " + name + " must be F32 with " + std::to_string(bytes) +
                               " bytes inside the file.");
    std::vector<float> numbers(bytes / sizeof(float));
    std::memcpy(numbers.data(), file.data() + body + begin, bytes);
    weights.emplace(name, std::move(numbers));
  }
  for (const auto& [name, shape] : shapes)
    if (weights.count(name) == 0) throw std::runtime_error("weights.file: has no " + name + ".");
  return weights;
}

}  // namespace libtorch_driver
