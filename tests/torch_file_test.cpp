// PyTorch's files of weights: golden/make_torch_files.py has torch.save write them, and every value comes back. Pickles
// made by hand try what a hostile file could: names to run, cycles, trees without end, counts that lie.
// ctest: asan
#include "tandem/io/torch_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/io/npy.h"
#include "tandem/io/zip.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/conv.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

std::string golden(const std::string& name) { return (source_dir() / "tests/golden/torch" / name).string(); }

/// Everything of a file by name.
std::map<std::string, Tensor> loaded(const std::string& path) {
  const io::NamedTensors tensors = io::load_torch(path);
  EXPECT_TRUE(
      std::is_sorted(tensors.begin(), tensors.end(), [](auto& a, auto& b) { return a.first < b.first; }));
  return {tensors.begin(), tensors.end()};
}

/// What the script put under a name.
Tensor made(const std::string& name, const Dims& shape) {
  return to_tensor(hash_array(shape, name_salt(name)), DType::f32);
}

TEST(TorchFile, StateDictsComeBackToTheBitInEveryProtocol) {
  for (const char* file : {"state_dict.pt", "protocol4.pth"}) {
    const std::map<std::string, Tensor> tensors = loaded(golden(file));
    ASSERT_EQ(tensors.size(), 9u);
    const std::map<std::string, Dims> shapes = {{"features.0.weight", {2, 1, 3, 3}},
                                                {"features.0.bias", {2}},
                                                {"features.1.weight", {2}},
                                                {"features.1.bias", {2}},
                                                {"features.1.running_mean", {2}},
                                                {"features.1.running_var", {2}},
                                                {"fc.weight", {3, 8}},
                                                {"fc.bias", {3}}};
    for (const auto& [name, shape] : shapes)
      EXPECT_TRUE(same_bits(tensors.at(name), made(name, shape))) << name;
    EXPECT_TRUE(same_bits(tensors.at("features.1.num_batches_tracked"), zeros({}, DType::i64)));
  }
}

TEST(TorchFile, AModuleOfTheSameNamesTakesTheWeights) {
  struct Net : nn::Module {
    nn::Sequential features{this, "features", {nn::make<nn::Conv2d>(1, 2, 3), nn::make<nn::BatchNorm2d>(2)}};
    nn::Linear fc{this, "fc", 8, 3};
  } net;
  net.load_state(io::load_weights(golden("state_dict.pt")), "load");
  EXPECT_TRUE(same_bits(net.fc.weight.detach(), made("fc.weight", {3, 8})));
  EXPECT_TRUE(
      same_bits(net.features.at<nn::BatchNorm2d>(1).running_var, made("features.1.running_var", {2})));
}

TEST(TorchFile, EveryTypeThatBothHaveComesBack) {
  const std::map<std::string, Tensor> tensors = loaded(golden("dtypes.pt"));
  ASSERT_EQ(tensors.size(), static_cast<size_t>(kDTypeCount));
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name = tandem::name(dtype);
    const double low = is_integer(dtype) ? (name[0] == 'u' ? 0 : -100) : dtype == DType::boolean ? 0 : -100;
    Array values = hash_array({2, 3}, name_salt(name), low, dtype == DType::boolean ? 2 : 100);
    if (dtype == DType::boolean)
      for (double& v : values.values) v = std::trunc(v);
    EXPECT_TRUE(same_bits(tensors.at(name), to_tensor(values, dtype))) << name;
  }
}

TEST(TorchFile, ViewsOfOneStorageBecomeRowMajorCopies) {
  const std::map<std::string, Tensor> tensors = loaded(golden("views.pt"));
  const Tensor base = made("base", {4, 6});
  const std::map<std::string, Tensor> want = {{"base", base},
                                              {"transposed", transpose(base, 0, 1)},
                                              {"columns", slice(slice(base, 0, 1, 3), 1, 1, 6, 2)},
                                              {"row", base[2]},
                                              {"scalar", base[3][5]},
                                              {"expanded", expand(base[0], {3, 6})},
                                              {"empty", zeros({4, 0})},
                                              {"four", permute(made("four", {2, 3, 4, 5}), {2, 0, 3, 1})},
                                              {"channels_last", made("channels_last", {2, 3, 2, 2})}};
  ASSERT_EQ(tensors.size(), want.size());
  for (const auto& [name, tensor] : want) {
    EXPECT_TRUE(same_bits(tensors.at(name), contiguous(tensor))) << name;
    EXPECT_TRUE(tensors.at(name).is_contiguous()) << name;
  }
}

TEST(TorchFile, CheckpointsGiveDottedNamesAndPassOverWhatIsNoTensor) {
  const std::map<std::string, Tensor> tensors = loaded(golden("checkpoint.pt"));
  ASSERT_EQ(tensors.size(), 6u);
  EXPECT_TRUE(same_bits(tensors.at("model.weight"), made("model.weight", {3, 2})));
  EXPECT_TRUE(same_bits(tensors.at("model.tied"), made("model.weight", {3, 2})));
  EXPECT_TRUE(same_bits(tensors.at("optimizer.state.0.step"), full({}, 7)));
  EXPECT_TRUE(same_bits(tensors.at("optimizer.state.0.exp_avg"), made("optimizer.state.0.exp_avg", {3, 2})));
  EXPECT_TRUE(same_bits(tensors.at("losses.0"), made("losses.0", {2})));
  EXPECT_TRUE(same_bits(tensors.at("losses.1"), made("losses.1", {1})));
  const std::map<std::string, Tensor> bare = loaded(golden("tensor.pt"));
  ASSERT_EQ(bare.size(), 1u);
  EXPECT_TRUE(same_bits(bare.at(""), made("", {2, 3})));
}

TEST(TorchFile, WhatIsNotAFileOfWeightsIsRefusedWithTheWayOut) {
  const auto refusal = [](const std::string& path) { return error_of([&] { io::load_torch(path); }); };
  const std::string old = golden("legacy.pt"), model = golden("whole_model.pt");
  EXPECT_EQ(refusal(old),
            str("load '", old,
                "': must be of the format of PyTorch 1.6 or later, a zip archive; it is of the older one "
                "(or of _use_new_zipfile_serialization=False). Convert it in Python: "
                "torch.save(torch.load(path), new_path)."));
  EXPECT_EQ(error_of([&] { io::load_weights(old); }), refusal(old));
  EXPECT_EQ(
      refusal(model),
      str("load '", model,
          "': must hold nothing but tensors in dicts, lists and tuples; it asks for Python's "
          "'torch.nn.modules.linear.Linear', and nothing of a file is ever run. Save the weights alone: "
          "torch.save(model.state_dict(), path)."));
  EXPECT_EQ(refusal(golden("complex.pt")), str("load '", golden("complex.pt"),
                                               "': the tensors must be of a type that Tandem has; it asks "
                                               "for 'torch.ComplexFloatStorage'. Convert them "
                                               "before saving, for example by tensor.float()."));
  EXPECT_HAS(refusal(golden("script.pt")), "it is TorchScript, a program.");
  TempFolder folder;
  io::save_safetensors(folder / "a.pt", {{"w", ones({2})}});
  EXPECT_HAS(refusal(folder / "a.pt"), "must be a zip archive");
  io::save_npz(folder / "a.npz", {{"w", ones({2})}});
  EXPECT_HAS(refusal(folder / "a.npz"), "must hold a data.pkl");
  EXPECT_HAS(refusal(folder / "none.pt"), "none.pt");
  write_text(folder / "empty.pt", "");
  EXPECT_HAS(refusal(folder / "empty.pt"), "must be a zip archive");
}

TEST(LoadWeights, TellsTheFormatByTheBytesAndNotByTheName) {
  TempFolder folder;
  io::save_safetensors(folder / "a.pt", {{"w", ones({2})}});
  EXPECT_EQ(io::load_weights(folder / "a.pt").at(0).first, "w");
  io::save_npz(folder / "a.safetensors", {{"v", ones({2})}});
  EXPECT_EQ(io::load_weights(folder / "a.safetensors").at(0).first, "v");
  EXPECT_EQ(io::load_weights(golden("tensor.pt")).size(), 1u);
  write_text(folder / "empty", "");
  EXPECT_HAS(error_of([&] { io::load_weights(folder / "empty"); }), "empty");
}

// --- pickles by hand

std::string little(uint64_t value, size_t bytes) { return {reinterpret_cast<const char*>(&value), bytes}; }
std::string text(const std::string& value) { return "X" + little(value.size(), 4) + value; }
std::string number(int64_t value) { return "\x8a\x08" + little(static_cast<uint64_t>(value), 8); }
std::string tuple(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const int64_t value : values) out += number(value);
  return out + "t";
}
std::string call(const std::string& module, const std::string& name, const std::string& arguments) {
  return "c" + module + "\n" + name + "\n" + arguments + "R";
}
std::string storage(const std::string& key, int64_t count, const std::string& type = "FloatStorage") {
  return "(" + text("storage") + "ctorch\n" + type + "\n" + text(key) + text("cpu") + number(count) + "tQ";
}
std::string tensor(const std::string& of, int64_t offset, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides) {
  return call("torch._utils", "_rebuild_tensor_v2",
              "(" + of + number(offset) + tuple(shape) + tuple(strides) + "\x89" +
                  call("collections", "OrderedDict", ")") + "t");
}
std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += text(key) + value;
  return out + "u";
}

/// Loads an archive of this pickle and one storage "0" of four floats (1, 2, 3, 4).
class HandMade {
 public:
  io::NamedTensors load(const std::string& pickle) {
    const float values[4] = {1, 2, 3, 4};
    const auto piece = [](const void* data, size_t bytes) {
      return std::span(static_cast<const uint8_t*>(data), bytes);
    };
    io::write_zip(folder_ / "h.pt", {{"h/data.pkl", {piece(pickle.data(), pickle.size())}},
                                     {"h/byteorder", {piece(order.data(), order.size())}},
                                     {"h/data/0", {piece(values, sizeof(values))}}});
    return io::load_torch(folder_ / "h.pt");
  }
  /// The pickle of a value alone, refused: the message without the file's name.
  std::string refusal(const std::string& value) {
    const std::string message = error_of([&] { load("\x80\x02" + value + "."); });
    const std::string begin = "load '" + folder_.path() + "/h.pt': ";
    EXPECT_TRUE(message.starts_with(begin)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_TRUE(message.ends_with('.')) << message;
    return message.substr(std::min(begin.size(), message.size()));
  }
  std::string order = "little";

 private:
  TempFolder folder_;
};

TEST(TorchFile, APickleByHandLoads) {
  HandMade file;
  const io::NamedTensors tensors =
      file.load("\x80\x02" + dict({{"w", tensor(storage("0", 4), 1, {3}, {1})}}) + ".");
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_TRUE(same_bits(tensors[0].second, from_vector<float>({2, 3, 4}, {3})));
}

TEST(TorchFile, NothingOfAFileIsRun) {
  HandMade file;
  EXPECT_EQ(file.refusal(call("os", "system", "(" + text("true") + "t")),
            "must hold nothing but tensors in dicts, lists and tuples; it asks for Python's 'os.system', and "
            "nothing of a "
            "file is ever run. Save the weights alone: torch.save(model.state_dict(), path).");
  EXPECT_HAS(file.refusal(text("posix") + text("system") + "\x93"), "it asks for Python's 'posix.system'");
  EXPECT_HAS(file.refusal("cbuiltins\neval\n" + text("1") + "\x85R"), "'builtins.eval'");
  EXPECT_HAS(file.refusal("ctorch._utils\n_rebuild_tensor_v2.__globals__\n"),
             "'torch._utils._rebuild_tensor_v2.__globals__'");
  EXPECT_HAS(file.refusal("ctwo\nli\x01nes\n"), "'two.li");
  // Opcodes that make objects: INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1, PERSID, and the text ones of protocol 0.
  for (const std::string opcode :
       {"(ios\nsystem\n", "(o", ")\x81", ")}\x92", "\x82\x01", "Pid\n", "I1\n", "V1\n"})
    EXPECT_HAS(file.refusal(opcode), "must use the opcodes that torch.save writes for tensors; got 0x");
  EXPECT_HAS(file.refusal("ctorch\nFloatStorage\n)R"), "FloatStorage must not be called");
  EXPECT_HAS(file.refusal(dict({{"a", "ctorch\nFloatStorage\n"}})), "'a' is a FloatStorage");
  EXPECT_HAS(file.refusal(dict({{"a", storage("0", 4)}})), "'a' is a storage");
  EXPECT_HAS(file.refusal("ccollections\nOrderedDict\n(" + text("a") + "tR"), "must begin empty");
  EXPECT_HAS(file.refusal(text("a") + "}R"),
             "a call must be of a name, with a tuple; got a string with a dict");
  EXPECT_HAS(file.refusal(text("a") + "}b"),
             "attributes must be a dict, for a dict; got a dict for a string");
}

TEST(TorchFile, CyclesAndTreesWithoutEndAreRefused) {
  HandMade file;
  EXPECT_HAS(file.refusal(std::string("}q\0", 3) + text("a") + std::string("h\0s", 3)),
             "deep within each other; these lie deeper, or within themselves");
  EXPECT_HAS(file.refusal(std::string("]q\0h\0a", 6)), "or within themselves");
  // A list of two pairs of two pairs …: 2^40 leaves in 240 bytes.
  // A pair of one pair twice, forty times: 2^40 leaves in 240 bytes.
  std::string pairs = "]";
  for (int i = 0; i < 40; ++i)
    pairs += std::string("q") + static_cast<char>(i) + "h" + static_cast<char>(i) + "\x86";
  EXPECT_HAS(file.refusal(pairs), "must hold at most 2097152 values, counted wherever they are used");
  std::string deep(1000, ']');
  deep += std::string(999, 'a');
  EXPECT_HAS(file.refusal(deep), "at most 100 deep");
  EXPECT_HAS(file.refusal(std::string(1 << 20, '}')), "must end with one value; it leaves");
  EXPECT_HAS(file.refusal(std::string(3 << 20, '}')), "must hold at most 2097152 values");
  EXPECT_HAS(file.refusal(std::string(1000, '(')), "needs a value that is not there");
}

TEST(TorchFile, CountsAndPlacesThatLieAreRefused) {
  HandMade file;
  const auto one = [&](int64_t offset, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& strides) {
    return file.refusal(dict({{"w", tensor(storage("0", 4), offset, shape, strides)}}));
  };
  EXPECT_EQ(one(1, {4}, {1}),
            "a tensor must lie within its storage of 4 elements; got offset 1, shape (4,) and strides (1,). "
            "The file is "
            "damaged or not what its name says: write or fetch it again.");
  constexpr int64_t kMost = INT64_MAX;
  EXPECT_HAS(one(0, {kMost}, {1}), "must lie within its storage");
  EXPECT_HAS(one(0, {int64_t{1} << 60}, {0}), "must lie within its storage");
  EXPECT_HAS(one(0, {0, int64_t{1} << 60}, {0, 0}), "must lie within its storage");
  EXPECT_HAS(one(0, {(int64_t{1} << 60) - 1}, {0}), "its tensors must unpack to at most");
  EXPECT_HAS(one(0, {2}, {kMost}), "must lie within its storage");
  EXPECT_HAS(one(kMost, {2, 2}, {kMost, kMost}), "must lie within its storage");
  EXPECT_HAS(one(0, {kMost, kMost, 0}, {0, 0, 0}), "must lie within its storage");
  EXPECT_HAS(one(-1, {1}, {1}), "an offset must be of integers of at least 0");
  EXPECT_HAS(one(0, {-1}, {1}), "a shape must be of integers of at least 0");
  EXPECT_HAS(one(0, {1}, {-1}), "strides must be of integers of at least 0");
  EXPECT_HAS(one(0, {1, 1}, {1}), "must have a stride for each axis");
  EXPECT_HAS(one(0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}),
             "must have at most 8 axes; got 9");
  EXPECT_HAS(one(0, {int64_t{1} << 40}, {0}),
             "its tensors must unpack to at most");  // four bytes as four TiB
  std::string many = "(";
  for (int i = 0; i < 100; ++i) many += tensor(storage("0", 4), 0, {1 << 20}, {0});
  EXPECT_HAS(file.refusal(many + "t"), "its tensors must unpack to at most 100 times its size");
  EXPECT_HAS(file.refusal(tensor(storage("0", 5), 0, {1}, {1})),
             "must have 5 elements of 4 bytes; it has 16 bytes");
  EXPECT_HAS(file.refusal(tensor(storage("0", kMost), 0, {1}, {1})), "elements of 4 bytes; it has 16 bytes");
  EXPECT_HAS(file.refusal(tensor(storage("0", -1), 0, {1}, {1})), "a size of at least 0");
  EXPECT_HAS(file.refusal(tensor(storage("7", 4), 0, {1}, {1})), "'h/data/7' is missing");
  EXPECT_HAS(file.refusal(tensor(storage("../data.pkl", 4), 0, {1}, {1})), "is missing");
  EXPECT_HAS(file.refusal(tensor(storage("0", 16, "BoolStorage"), 0, {16}, {1})), "must be 0 or 1");
  EXPECT_HAS(file.refusal(dict({{"a.b", tensor(storage("0", 4), 0, {1}, {1})},
                                {"a", dict({{"b", tensor(storage("0", 4), 0, {1}, {1})}})}})),
             "names must be unique; got 'a.b' twice");
  EXPECT_HAS(file.refusal("}N]s"), "the keys of a dict must be strings or integers");
  EXPECT_HAS(file.refusal(dict({{std::string(5000, 'x'), "N"}})), "names must take at most 4096 bytes");
  EXPECT_HAS(file.refusal("X" + little(0xffffffff, 4)), "must take 4294967295 bytes");
  EXPECT_HAS(file.refusal("\x8d" + little(UINT64_MAX, 8)), "must take 18446744073709551615 bytes");
  EXPECT_HAS(file.refusal("h\x05"), "the memo must have the place 5");
  EXPECT_HAS(file.refusal("j" + little(0xfffffff0, 4)), "the memo must have the place 4294967280");
  EXPECT_HAS(file.refusal("t"), "needs a mark");
  EXPECT_HAS(file.refusal("}(Nu"), "must come in pairs");
  EXPECT_HAS(file.refusal("NNa"), "appended to a list; got another value");
  EXPECT_HAS(file.refusal("\x80\x07"), "the version must be 2 to 5; got 7");
  EXPECT_HAS(error_of([&] { file.load("\x80\x02}"); }), "an opcode must take 1 bytes; 0 are left");
  file.order = "big";
  EXPECT_HAS(file.refusal("}"), "its byteorder is 'big'");
}

TEST(TorchFile, AreRefusedWhereverTheyAreCutOff) {
  TempFolder folder;
  const std::string whole = read_text(golden("state_dict.pt"));
  for (size_t bytes = 0; bytes < whole.size(); bytes += 7) {
    write_text(folder / "cut.pt", whole.substr(0, bytes));
    EXPECT_HAS(error_of([&] { io::load_torch(folder / "cut.pt"); }), "cut.pt");
  }
}

}  // namespace
}  // namespace tandem::testing
