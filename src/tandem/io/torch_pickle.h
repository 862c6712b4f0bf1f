// The pickle inside a file of torch.save, read without Python: an interpreter of the opcodes that torch.save writes. It
// builds plain values and knows a closed list of names (OrderedDict, the functions that rebuild tensors, storage classes);
// any other class or function is refused by its name, and nothing of a file is ever run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tandem/core/dtype.h"
#include "tandem/core/shape.h"
#include "tandem/io/byte_reader.h"

namespace tandem::io {

class TorchPickle {
 public:
  /// A value is known by its place in one pool, so that a cycle of containers costs nothing.
  using Id = uint32_t;
  /// other: None, a float, bytes, an integer of more than 64 bits. They may stand in a file and are no tensors.
  enum class Kind : uint8_t { other, boolean, integer, text, list, tuple, dict, name, storage, tensor };
  struct Value {
    Kind kind = Kind::other;
    int64_t number = 0;          // boolean, integer; the row of a name, a storage or a tensor in its table
    std::string_view text = {};  // lies in the pickle's bytes
    std::vector<Id> items = {};  // of a dict: key, value, key, value …
  };
  struct Storage {
    std::string_view key;  // its file in the archive: <root>/data/<key>
    bool has_type = true;  // an untyped one counts bytes; its tensors say their types
    DType dtype = DType::u8;
    uint64_t count = 0;
  };
  struct StoredTensor {
    size_t storage = 0;
    DType dtype = DType::u8;
    int64_t offset = 0;  // in elements
    Dims shape, strides;
  };

  /// Runs a whole pickle, at most max_values values of it. `bytes` and `where`, which messages begin with, must outlive
  /// this object. Throws Error.
  TorchPickle(const std::string& where, std::span<const uint8_t> bytes, size_t max_values);

  const Value& operator[](Id id) const { return values_[id]; }
  Id root() const { return root_; }
  const Storage& storage(const StoredTensor& of) const { return storages_[of.storage]; }
  const StoredTensor& tensor(const Value& value) const { return tensors_[static_cast<size_t>(value.number)]; }

 private:
  /// What an opcode does to the values and the stack.
  struct Opcode {
    uint8_t code;
    void (*run)(TorchPickle&);
  };
  static const Opcode kOpcodes[];

  void run();
  [[noreturn]] void refuse_opcode(uint8_t opcode, size_t at) const;
  void check_version();
  Id add(Value value);
  void push(Value value) { stack_.push_back(add(std::move(value))); }
  void push_integer(int64_t number) { push({.kind = Kind::integer, .number = number}); }
  void push_long();
  void push_text(std::string_view text) { push({.kind = Kind::text, .text = text}); }
  void push_tuple(std::vector<Id> items) { push({.kind = Kind::tuple, .items = std::move(items)}); }
  Id pop();
  std::vector<Id> pop(size_t count);  // in the order in which they were pushed
  std::vector<Id> pop_mark();         // all above the last mark
  Id top() const;
  std::string_view text(uint64_t bytes) {
    const std::span<const uint8_t> piece = reader_.take(bytes, "a string");
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }
  /// A string behind its length, which takes as many bytes as a Length.
  template <class Length>
  std::string_view text() {
    return text(reader_.number<Length>("a length"));
  }
  template <class Place>
  Place place() {
    return reader_.number<Place>("a place of the memo");
  }
  std::string_view line();
  void push_global();
  void push_stack_global();
  void push_name(std::string_view module, std::string_view name);
  void remember(uint32_t at) { memo_[at] = top(); }
  void recall(uint32_t at);
  void set_items(const std::vector<Id>& items);
  void append_items(const std::vector<Id>& items);
  void push_storage();
  void reduce();
  void build();
  Value rebuilt(const Value& arguments, bool says_type);
  Dims dims(Id id, const char* what) const;
  int64_t integer(Id id, const char* what) const;
  bool is_empty_dict(Id id) const { return values_[id].kind == Kind::dict && values_[id].items.empty(); }

  ByteReader reader_;
  size_t max_values_;
  std::vector<Value> values_;
  std::vector<Storage> storages_;
  std::vector<StoredTensor> tensors_;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint32_t, Id> memo_;
  Id root_ = 0;
};

}  // namespace tandem::io
