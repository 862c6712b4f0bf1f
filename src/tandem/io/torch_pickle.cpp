// The interpreter. Every opcode makes at most one value and every count is compared with the bytes that are there, so
// that memory stays in proportion to the pickle.
#include "tandem/io/torch_pickle.h"

#include <algorithm>

#include "tandem/core/file.h"

namespace tandem::io {

namespace {

/// What a name of the closed list stands for.
enum class Meaning : uint8_t {
  ordered_dict,
  tensor,
  typed_tensor,
  parameter,
  storage,
  untyped_storage,
  dtype
};
struct Known {
  std::string_view module, name;
  Meaning meaning;
  DType dtype = DType::u8;  // of a storage or a dtype
};
constexpr Known kKnown[] = {
    {"collections", "OrderedDict", Meaning::ordered_dict},
    {"torch._utils", "_rebuild_tensor_v2", Meaning::tensor},
    {"torch._utils", "_rebuild_tensor_v3", Meaning::typed_tensor},
    {"torch._utils", "_rebuild_parameter", Meaning::parameter},
    {"torch", "DoubleStorage", Meaning::storage, DType::f64},
    {"torch", "FloatStorage", Meaning::storage, DType::f32},
    {"torch", "BFloat16Storage", Meaning::storage, DType::bf16},
    {"torch", "HalfStorage", Meaning::storage, DType::f16},
    {"torch", "CharStorage", Meaning::storage, DType::i8},
    {"torch", "ShortStorage", Meaning::storage, DType::i16},
    {"torch", "IntStorage", Meaning::storage, DType::i32},
    {"torch", "LongStorage", Meaning::storage, DType::i64},
    {"torch", "ByteStorage", Meaning::storage, DType::u8},
    {"torch", "BoolStorage", Meaning::storage, DType::boolean},
    {"torch.storage", "UntypedStorage", Meaning::untyped_storage},
    {"torch", "uint16", Meaning::dtype, DType::u16},
    {"torch", "uint32", Meaning::dtype, DType::u32},
    {"torch", "uint64", Meaning::dtype, DType::u64},
};

const char* name(TorchPickle::Kind kind) {
  constexpr const char* kNames[] = {"another value", "a boolean", "an integer", "a string",  "a list",
                                    "a tuple",       "a dict",    "a name",     "a storage", "a tensor"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

TorchPickle::TorchPickle(const std::string& where, std::span<const uint8_t> bytes, size_t max_values)
    : reader_(where, bytes), max_values_(max_values) {
  run();
}

// All opcodes but STOP. Floats and bytes are only passed over.
const TorchPickle::Opcode TorchPickle::kOpcodes[] = {
    {0x80, [](TorchPickle& p) { p.check_version(); }},                      // PROTO
    {0x95, [](TorchPickle& p) { p.reader_.take(8, "a frame's length"); }},  // FRAME

    {'N', [](TorchPickle& p) { p.push({}); }},                                                // NONE
    {0x88, [](TorchPickle& p) { p.push({.kind = Kind::boolean, .number = 1}); }},             // NEWTRUE
    {0x89, [](TorchPickle& p) { p.push({.kind = Kind::boolean, .number = 0}); }},             // NEWFALSE
    {'J', [](TorchPickle& p) { p.push_integer(p.reader_.number<int32_t>("an integer")); }},   // BININT
    {'K', [](TorchPickle& p) { p.push_integer(p.reader_.number<uint8_t>("an integer")); }},   // BININT1
    {'M', [](TorchPickle& p) { p.push_integer(p.reader_.number<uint16_t>("an integer")); }},  // BININT2
    {0x8a, [](TorchPickle& p) { p.push_long(); }},                                            // LONG1
    {'G', [](TorchPickle& p) { p.reader_.take(8, "a float"), p.push({}); }},                  // BINFLOAT
    {'C', [](TorchPickle& p) { p.text<uint8_t>(), p.push({}); }},     // SHORT_BINBYTES
    {'B', [](TorchPickle& p) { p.text<uint32_t>(), p.push({}); }},    // BINBYTES
    {0x8c, [](TorchPickle& p) { p.push_text(p.text<uint8_t>()); }},   // SHORT_BINUNICODE
    {'X', [](TorchPickle& p) { p.push_text(p.text<uint32_t>()); }},   // BINUNICODE
    {0x8d, [](TorchPickle& p) { p.push_text(p.text<uint64_t>()); }},  // BINUNICODE8

    {'}', [](TorchPickle& p) { p.push({.kind = Kind::dict}); }},         // EMPTY_DICT
    {']', [](TorchPickle& p) { p.push({.kind = Kind::list}); }},         // EMPTY_LIST
    {')', [](TorchPickle& p) { p.push({.kind = Kind::tuple}); }},        // EMPTY_TUPLE
    {'(', [](TorchPickle& p) { p.marks_.push_back(p.stack_.size()); }},  // MARK
    {'t', [](TorchPickle& p) { p.push_tuple(p.pop_mark()); }},           // TUPLE
    {0x85, [](TorchPickle& p) { p.push_tuple(p.pop(1)); }},              // TUPLE1
    {0x86, [](TorchPickle& p) { p.push_tuple(p.pop(2)); }},              // TUPLE2
    {0x87, [](TorchPickle& p) { p.push_tuple(p.pop(3)); }},              // TUPLE3
    {'s', [](TorchPickle& p) { p.set_items(p.pop(2)); }},                // SETITEM
    {'u', [](TorchPickle& p) { p.set_items(p.pop_mark()); }},            // SETITEMS
    {'a', [](TorchPickle& p) { p.append_items(p.pop(1)); }},             // APPEND
    {'e', [](TorchPickle& p) { p.append_items(p.pop_mark()); }},         // APPENDS

    {'q', [](TorchPickle& p) { p.remember(p.place<uint8_t>()); }},                      // BINPUT
    {'r', [](TorchPickle& p) { p.remember(p.place<uint32_t>()); }},                     // LONG_BINPUT
    {0x94, [](TorchPickle& p) { p.remember(static_cast<uint32_t>(p.memo_.size())); }},  // MEMOIZE
    {'h', [](TorchPickle& p) { p.recall(p.place<uint8_t>()); }},                        // BINGET
    {'j', [](TorchPickle& p) { p.recall(p.place<uint32_t>()); }},                       // LONG_BINGET

    {'c', [](TorchPickle& p) { p.push_global(); }},         // GLOBAL
    {0x93, [](TorchPickle& p) { p.push_stack_global(); }},  // STACK_GLOBAL
    {'Q', [](TorchPickle& p) { p.push_storage(); }},        // BINPERSID
    {'R', [](TorchPickle& p) { p.reduce(); }},              // REDUCE
    {'b', [](TorchPickle& p) { p.build(); }},               // BUILD
};

void TorchPickle::run() {
  constexpr uint8_t kStop = '.';
  for (;;) {
    const size_t at = reader_.at();
    const auto opcode = reader_.number<uint8_t>("the pickle: an opcode");
    if (opcode == kStop) break;
    const auto known = std::find_if(std::begin(kOpcodes), std::end(kOpcodes),
                                    [&](const Opcode& row) { return row.code == opcode; });
    if (known == std::end(kOpcodes)) refuse_opcode(opcode, at);
    known->run(*this);
  }
  root_ = pop();
  if (!stack_.empty() || !marks_.empty())
    reader_.fail("the pickle: must end with one value; it leaves ", stack_.size(), " more");
}

void TorchPickle::refuse_opcode(uint8_t opcode, size_t at) const {
  constexpr const char* kDigits = "0123456789abcdef";
  throw Error(str(reader_.where(),
                  "the pickle: must use the opcodes that torch.save writes for tensors; got 0x",
                  kDigits[opcode >> 4], kDigits[opcode & 15], " at byte ", at,
                  ". Save the weights alone: torch.save(model.state_dict(), path)."));
}

void TorchPickle::check_version() {
  const auto version = reader_.number<uint8_t>("the version");
  if (version < 2 || version > 5) reader_.fail("the pickle: the version must be 2 to 5; got ", int{version});
}

/// Two's complement, little-endian. A number of more than 64 bits may stand in a file and is none that is needed.
void TorchPickle::push_long() {
  const std::span<const uint8_t> bytes = reader_.take(reader_.number<uint8_t>("a length"), "an integer");
  if (bytes.size() > sizeof(int64_t)) return push({});
  uint64_t number = !bytes.empty() && bytes.back() >= 0x80 ? ~uint64_t{0} : 0;
  for (size_t i = bytes.size(); i-- > 0;) number = number << 8 | bytes[i];
  push_integer(static_cast<int64_t>(number));
}

/// The module and the name, each in a line.
void TorchPickle::push_global() {
  const std::string_view module = line();
  push_name(module, line());
}

/// The module and the name from the stack.
void TorchPickle::push_stack_global() {
  const Id name = pop(), module = pop();
  if (values_[name].kind != Kind::text || values_[module].kind != Kind::text)
    reader_.fail("the pickle: a name must be two strings; got ", io::name(values_[module].kind), " and ",
                 io::name(values_[name].kind));
  push_name(values_[module].text, values_[name].text);
}

TorchPickle::Id TorchPickle::add(Value value) {
  TD_CHECK(values_.size() < max_values_, reader_.where(), "the pickle: must hold at most ", max_values_,
           " values; it holds more. Where you trust the file, raise the limit "
           "(TANDEM_READING_LIMITS=header_bytes=…).");
  values_.push_back(std::move(value));
  return static_cast<Id>(values_.size() - 1);
}

TorchPickle::Id TorchPickle::top() const {
  if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back()))
    reader_.fail("the pickle: an opcode before byte ", reader_.at(), " needs a value that is not there");
  return stack_.back();
}

TorchPickle::Id TorchPickle::pop() {
  const Id id = top();
  stack_.pop_back();
  return id;
}

std::vector<TorchPickle::Id> TorchPickle::pop(size_t count) {
  std::vector<Id> items(count);
  for (size_t i = count; i-- > 0;) items[i] = pop();
  return items;
}

std::vector<TorchPickle::Id> TorchPickle::pop_mark() {
  if (marks_.empty())
    reader_.fail("the pickle: an opcode before byte ", reader_.at(), " needs a mark; there is none");
  const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  marks_.pop_back();
  std::vector<Id> items(from, stack_.end());
  stack_.erase(from, stack_.end());
  return items;
}

std::string_view TorchPickle::line() {
  constexpr size_t kLongest = 1000;
  const size_t begin = reader_.at();
  size_t length = 0;
  while (reader_.number<char>("a name") != '\n')
    if (++length > kLongest) reader_.fail("the pickle: a name must take at most ", kLongest, " bytes");
  reader_.seek(begin, "a name");
  const std::string_view name = text(length);
  reader_.take(1, "a name");
  return name;
}

void TorchPickle::push_name(std::string_view module, std::string_view name) {
  for (size_t i = 0; i < std::size(kKnown); ++i)
    if (kKnown[i].module == module && kKnown[i].name == name) {
      push({.kind = Kind::name, .number = static_cast<int64_t>(i), .text = name});
      return;
    }
  const std::string full = one_line(str(module, ".", name), 100);
  TD_CHECK(!(module == "torch" &&
             (name.ends_with("Storage") || name.starts_with("float") || name.starts_with("complex"))),
           reader_.where(), "the tensors must be of a type that Tandem has; it asks for '", full,
           "'. Convert them before saving, for example by tensor.float().");
  throw Error(str(
      reader_.where(), "must hold nothing but tensors in dicts, lists and tuples; it asks for Python's '",
      full,
      "', and nothing of a file is ever run. Save the weights alone: torch.save(model.state_dict(), path)."));
}

void TorchPickle::recall(uint32_t at) {
  const auto found = memo_.find(at);
  if (found == memo_.end()) reader_.fail("the pickle: the memo must have the place ", at, "; it has not");
  stack_.push_back(found->second);
}

void TorchPickle::set_items(const std::vector<Id>& items) {
  Value& dict = values_[top()];
  if (dict.kind != Kind::dict || items.size() % 2 != 0)
    reader_.fail("the pickle: keys and values must come in pairs, for a dict; got ", items.size(),
                 " of them for ", io::name(dict.kind));
  dict.items.insert(dict.items.end(), items.begin(), items.end());
}

void TorchPickle::append_items(const std::vector<Id>& items) {
  Value& list = values_[top()];
  if (list.kind != Kind::list)
    reader_.fail("the pickle: values must be appended to a list; got ", io::name(list.kind));
  list.items.insert(list.items.end(), items.begin(), items.end());
}

/// A persistent id: ("storage", its class, its key, its device, how many elements).
void TorchPickle::push_storage() {
  const Value& id = values_[pop()];
  const auto is = [&](size_t i, Kind kind) { return values_[id.items[i]].kind == kind; };
  if (id.kind != Kind::tuple || id.items.size() != 5 || !is(0, Kind::text) || !is(1, Kind::name) ||
      !is(2, Kind::text) || !is(3, Kind::text) || !is(4, Kind::integer) ||
      values_[id.items[0]].text != "storage")
    reader_.fail("the pickle: a storage must be ('storage', class, key, device, size); it is not");
  const Known& known = kKnown[values_[id.items[1]].number];
  const int64_t count = values_[id.items[4]].number;
  if ((known.meaning != Meaning::storage && known.meaning != Meaning::untyped_storage) || count < 0)
    reader_.fail("the pickle: a storage must have a class of storages and a size of at least 0; got ",
                 known.name, " and ", count);
  storages_.push_back({.key = values_[id.items[2]].text,
                       .has_type = known.meaning == Meaning::storage,
                       .dtype = known.dtype,
                       .count = static_cast<uint64_t>(count)});
  push({.kind = Kind::storage, .number = static_cast<int64_t>(storages_.size() - 1)});
}

void TorchPickle::reduce() {
  const Id arguments_id = pop();
  const Value &arguments = values_[arguments_id], &function = values_[pop()];
  if (function.kind != Kind::name || arguments.kind != Kind::tuple)
    reader_.fail("the pickle: a call must be of a name, with a tuple; got ", io::name(function.kind),
                 " with ", io::name(arguments.kind));
  const Known& known = kKnown[function.number];
  switch (known.meaning) {
    case Meaning::ordered_dict:
      if (!arguments.items.empty()) reader_.fail("the pickle: an OrderedDict must begin empty; it does not");
      push({.kind = Kind::dict});
      break;
    case Meaning::tensor:
      push(rebuilt(arguments, false));
      break;
    case Meaning::typed_tensor:
      push(rebuilt(arguments, true));
      break;
    case Meaning::parameter:  // (tensor, requires_grad, hooks)
      if (arguments.items.size() != 3 || values_[arguments.items[0]].kind != Kind::tensor ||
          !is_empty_dict(arguments.items[2]))
        reader_.fail("the pickle: a parameter must be a tensor, a boolean and no hooks; it is not");
      stack_.push_back(arguments.items[0]);
      break;
    default:
      reader_.fail("the pickle: ", known.name, " must not be called; it is");
  }
}

/// From (storage, offset, shape, strides, requires_grad, hooks), of v3 with the type besides; metadata may follow.
TorchPickle::Value TorchPickle::rebuilt(const Value& arguments, bool says_type) {
  const std::vector<Id>& items = arguments.items;
  const size_t least = says_type ? 7 : 6;
  if (items.size() < least || items.size() > least + 1 || values_[items[0]].kind != Kind::storage ||
      !is_empty_dict(items[5]))
    reader_.fail(
        "the pickle: a tensor must be rebuilt from a storage, an offset, a shape, strides, a boolean and no "
        "hooks; it is not");
  if (items.size() > least && !is_empty_dict(items[least]) && values_[items[least]].kind != Kind::other)
    throw Error(
        str(reader_.where(),
            "tensors must lie in memory as they are; one is a negated or conjugated view. Save a copy of it: "
            "tensor.resolve_neg().resolve_conj()."));
  StoredTensor tensor;
  tensor.storage = static_cast<size_t>(values_[items[0]].number);
  const Storage& storage = storages_[tensor.storage];
  const Value& type = values_[items[says_type ? 6 : 0]];
  if (says_type &&
      (type.kind != Kind::name || kKnown[type.number].meaning != Meaning::dtype || storage.has_type))
    reader_.fail("the pickle: a typed tensor must have an untyped storage and a dtype; it has not");
  if (!says_type && !storage.has_type)
    reader_.fail("the pickle: a tensor without a type must have a typed storage; it has not");
  tensor.dtype = says_type ? kKnown[type.number].dtype : storage.dtype;
  tensor.offset = integer(items[1], "an offset");
  tensor.shape = dims(items[2], "a shape");
  tensor.strides = dims(items[3], "strides");
  if (tensor.shape.rank() != tensor.strides.rank())
    reader_.fail("the pickle: a tensor must have a stride for each axis; got shape ", tensor.shape,
                 " and strides ", tensor.strides);
  tensors_.push_back(tensor);
  return {.kind = Kind::tensor, .number = static_cast<int64_t>(tensors_.size() - 1)};
}

/// Attributes of a dict: state_dict() has its versions there, which nothing here needs.
void TorchPickle::build() {
  const Value& state = values_[pop()];
  const Value& of = values_[top()];
  if (state.kind != Kind::dict || of.kind != Kind::dict)
    reader_.fail("the pickle: attributes must be a dict, for a dict; got ", io::name(state.kind), " for ",
                 io::name(of.kind));
}

int64_t TorchPickle::integer(Id id, const char* what) const {
  const Value& value = values_[id];
  if (value.kind != Kind::integer || value.number < 0)
    reader_.fail("the pickle: ", what, " must be of integers of at least 0; got ", io::name(value.kind), " (",
                 value.number, ")");
  return value.number;
}

Dims TorchPickle::dims(Id id, const char* what) const {
  const Value& value = values_[id];
  if (value.kind != Kind::tuple)
    reader_.fail("the pickle: ", what, " must be a tuple; got ", io::name(value.kind));
  TD_CHECK(value.items.size() <= kMaxRank, reader_.where(), what, " of a tensor must have at most ", kMaxRank,
           " axes; got ", value.items.size(), ". Reshape it before saving.");
  Dims out;
  for (const Id item : value.items) out.push_back(integer(item, what));
  return out;
}

}  // namespace tandem::io
