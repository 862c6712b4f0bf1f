// Writes the CUDA C++ of fused programs: the functors of ops/scalar_functions.h, applied in order, each result
// rounded to its type as the separate ops would store it.
#include <map>
#include <sstream>

#include "tandem/backends/cuda/fused.h"
#include "tandem/core/error.h"
#include "tandem/ops/pointwise.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

const char* type_name(DType dtype) {
  static constexpr const char* kNames[kDTypeCount] = {
      "double", "float",         "BFloat16",       "Float16",  "signed char",   "short", "int",
      "long",   "unsigned char", "unsigned short", "unsigned", "unsigned long", "bool"};
  return kNames[static_cast<int>(dtype)];
}

/// bf16 and f16 are computed in float.
const char* compute_name(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? "float" : type_name(dtype);
}

DType register_dtype(const FusedProgram& program, int index) {
  const int inputs = static_cast<int>(program.inputs.size());
  return index < inputs ? program.inputs[static_cast<size_t>(index)].dtype
                        : program.steps[static_cast<size_t>(index - inputs)].dtype;
}

/// How an input is read: one element for all places, in step with the outputs, or by its strides.
enum class Walk { single, row_major, strided };

Walk walk_of(const FusedProgram::Input& input, const Dims& shape) {
  bool single = true;
  for (int d = 0; d < shape.rank(); ++d) single = single && (shape[d] == 1 || input.strides[d] == 0);
  if (single) return Walk::single;
  return is_contiguous(shape, input.strides) ? Walk::row_major : Walk::strided;
}

/// Axes of the program with neighbours merged where every input allows it.
struct Axes {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // [input][axis]
};
/// Axis d joins the one before it where stepping over all of d is one step of that one, in every input. Outputs are
/// row-major, so they always allow it.
Axes merge_axes(const FusedProgram& program) {
  Axes axes;
  axes.strides.resize(program.inputs.size());
  for (int d = 0; d < program.shape.rank(); ++d) {
    const int64_t size = program.shape[d];
    if (size == 1) continue;
    bool merges = !axes.sizes.empty();
    for (size_t n = 0; n < program.inputs.size() && merges; ++n)
      merges = axes.strides[n].back() == program.inputs[n].strides[d] * size;
    if (!merges) {
      axes.sizes.push_back(1);
      for (auto& strides : axes.strides) strides.push_back(0);
    }
    axes.sizes.back() *= size;
    for (size_t n = 0; n < program.inputs.size(); ++n) axes.strides[n].back() = program.inputs[n].strides[d];
  }
  return axes;
}

/// Writes the body of one program: the struct of its arguments, Args, the element function and the walk. All
/// stand in a namespace, so that names may repeat.
class BodyWriter {
 public:
  explicit BodyWriter(const FusedProgram& program) : p_(program) {
    for (const auto& input : p_.inputs) {
      walks_.push_back(walk_of(input, p_.shape));
      flat_ = flat_ && walks_.back() != Walk::strided;
    }
  }
  bool flat() const { return flat_; }

  std::string write() {
    out_ << "struct Args {\n  long n, blocks, wide;\n";
    for (size_t i = 0; i < p_.inputs.size(); ++i) out_ << "  const " << in_type(i) << "* in" << i << ";\n";
    for (size_t o = 0; o < p_.outputs.size(); ++o) out_ << "  " << out_type(o) << "* out" << o << ";\n";
    out_ << "};\n";
    write_compute();
    out_ << "__device__ __forceinline__ void run(const Args& a, unsigned block) {\n";
    flat_ ? write_flat_walk() : write_strided_walk();
    out_ << "}\n";
    return out_.str();
  }

 private:
  const char* in_type(size_t i) const { return type_name(p_.inputs[i].dtype); }
  const char* out_type(size_t o) const { return type_name(register_dtype(p_, p_.outputs[o])); }

  void write_compute() {
    out_ << "__device__ __forceinline__ void compute(";
    for (size_t i = 0; i < p_.inputs.size(); ++i) out_ << "const " << in_type(i) << " r" << i << ", ";
    for (size_t o = 0; o < p_.outputs.size(); ++o) out_ << (o ? ", " : "") << out_type(o) << "& o" << o;
    out_ << ") {\n";
    for (size_t s = 0; s < p_.steps.size(); ++s) write_step(s);
    for (size_t o = 0; o < p_.outputs.size(); ++o) out_ << "  o" << o << " = r" << p_.outputs[o] << ";\n";
    out_ << "}\n";
  }

  void write_step(size_t s) {
    const FusedProgram::Step& step = p_.steps[s];
    const char* type = type_name(step.dtype);
    out_ << "  const " << type << " r" << p_.inputs.size() + s << " = ";
    // A cast has rules of its own for NaN, for numbers out of range and for bool, which are those of the separate op.
    if (step.op == &op_cast()) {
      out_ << "CastTo<" << type << ", " << type_name(register_dtype(p_, step.in[0])) << ">::apply(r"
           << step.in[0] << ");\n";
      return;
    }
    out_ << "static_cast<" << type << ">(" << step.op->functor << "{}(";
    for (size_t i = 0; i < step.in.size(); ++i)
      out_ << (i ? ", " : "") << "static_cast<" << compute_name(register_dtype(p_, step.in[i])) << ">(r"
           << step.in[i] << ")";
    out_ << "));\n";
  }

  /// One element: inputs at place(input), outputs at [i].
  template <class Place>
  void write_element(const char* indent, const Place& place) {
    for (size_t o = 0; o < p_.outputs.size(); ++o) out_ << indent << out_type(o) << " e" << o << ";\n";
    out_ << indent << "compute(";
    for (size_t i = 0; i < p_.inputs.size(); ++i) out_ << "a.in" << i << "[" << place(i) << "], ";
    for (size_t o = 0; o < p_.outputs.size(); ++o) out_ << (o ? ", " : "") << "e" << o;
    out_ << ");\n";
    for (size_t o = 0; o < p_.outputs.size(); ++o) out_ << indent << "a.out" << o << "[i] = e" << o << ";\n";
  }

  /// Four elements a thread, by wide loads and stores where the addresses allow them. All loads stand before
  /// all stores, and there is no __restrict__: an output may be the very buffer of an input.
  void write_flat_walk() {
    out_ << "  long i = (block * " << kThreads << "L + threadIdx.x) * 4;\n  if (a.wide && i + 4 <= a.n) {\n";
    for (size_t i = 0; i < p_.inputs.size(); ++i) {
      if (walks_[i] == Walk::single)
        out_ << "    const " << in_type(i) << " x" << i << " = a.in" << i << "[0];\n";
      else
        out_ << "    const Four<" << in_type(i) << "> x" << i << " = *reinterpret_cast<const Four<"
             << in_type(i) << ">*>(a.in" << i << " + i);\n";
    }
    for (size_t o = 0; o < p_.outputs.size(); ++o) out_ << "    Four<" << out_type(o) << "> y" << o << ";\n";
    out_ << "#pragma unroll\n    for (int j = 0; j < 4; ++j) compute(";
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      out_ << "x" << i << (walks_[i] == Walk::single ? "" : ".v[j]") << ", ";
    for (size_t o = 0; o < p_.outputs.size(); ++o) out_ << (o ? ", " : "") << "y" << o << ".v[j]";
    out_ << ");\n";
    for (size_t o = 0; o < p_.outputs.size(); ++o)
      out_ << "    *reinterpret_cast<Four<" << out_type(o) << ">*>(a.out" << o << " + i) = y" << o << ";\n";
    out_ << "    return;\n  }\n  for (int j = 0; j < 4 && i < a.n; ++j, ++i) {\n";
    write_element("    ", [&](size_t i) { return std::string(walks_[i] == Walk::single ? "0" : "i"); });
    out_ << "  }\n";
  }

  /// One element a thread; sizes and strides are constants of the code.
  void write_strided_walk() {
    const Axes axes = merge_axes(p_);
    const bool narrow = size_of(p_.shape) < (int64_t{1} << 31);
    const char* suffix = narrow ? "u" : "ul";
    out_ << "  const long i = block * " << kThreads << "L + threadIdx.x;\n  if (i >= a.n) return;\n  "
         << (narrow ? "unsigned" : "unsigned long") << " q = i;\n";
    for (size_t d = axes.sizes.size(); d-- > 1;)
      out_ << "  const long c" << d << " = q % " << axes.sizes[d] << suffix << ";\n  q /= " << axes.sizes[d]
           << suffix << ";\n";
    out_ << "  const long c0 = q;\n";
    write_element("  ", [&](size_t i) {
      std::string place;
      for (size_t d = 0; d < axes.sizes.size(); ++d)
        if (axes.strides[i][d])
          place += str(place.empty() ? "" : " + ", "c", d, " * ", axes.strides[i][d], "L");
      return place.empty() ? std::string("0") : place;
    });
  }

  const FusedProgram& p_;
  std::vector<Walk> walks_;
  bool flat_ = true;
  std::ostringstream out_;
};

}  // namespace

// The text is also the key of the compiled kernel, so nothing in it depends on addresses. Sizes of flat programs are
// parameters: programs that differ in them alone share a body.
FusedSource write_fused_source(const std::vector<FusedProgram>& programs) {
  FusedSource source;
  source.parts.resize(programs.size());
  // Group the programs by body, in order of first appearance.
  struct Group {
    std::string body;
    std::vector<size_t> members;
  };
  std::vector<Group> groups;
  std::map<std::string, size_t> group_of;
  for (size_t p = 0; p < programs.size(); ++p) {
    TD_ASSERT(!programs[p].outputs.empty(), "a fused program without outputs");
    BodyWriter writer(programs[p]);
    const std::string body = writer.write();
    const auto [place, is_new] = group_of.emplace(body, groups.size());
    if (is_new) groups.push_back({body, {}});
    groups[place->second].members.push_back(p);
    FusedSource::Part& part = source.parts[p];
    part.size = size_of(programs[p].shape);
    part.per_block = writer.flat() ? 4 * kThreads : kThreads;
    part.inputs = static_cast<int>(programs[p].inputs.size());
    part.outputs = static_cast<int>(programs[p].outputs.size());
  }
  std::ostringstream out;
  out << "#include \"tandem/ops/scalar_functions.h\"\nusing namespace tandem;\n"
         "template <class T>\nstruct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) Four {\n  T v[4];\n};\n";
  for (size_t g = 0; g < groups.size(); ++g)
    out << "namespace body" << g << " {\n" << groups[g].body << "}\n";
  // Words are counted in the order of the struct: by group, then by member. All of it is 64-bit, without gaps.
  out << "struct Parameters {\n";
  for (size_t g = 0; g < groups.size(); ++g) {
    out << "  body" << g << "::Args group" << g << "[" << groups[g].members.size() << "];\n";
    for (const size_t p : groups[g].members) {
      FusedSource::Part& part = source.parts[p];
      part.first_word = source.words;
      source.words += 3 + static_cast<size_t>(part.inputs + part.outputs);
    }
  }
  out << "};\nextern \"C\" __global__ void __launch_bounds__(" << kThreads
      << ") fused(const __grid_constant__ Parameters p) {\n  unsigned block = blockIdx.x;\n";
  // Each block walks down the programs until its number falls into one: the same for all of its threads.
  for (size_t g = 0; g < groups.size(); ++g)
    out << "#pragma unroll 1\n  for (int j = 0; j < " << groups[g].members.size() << "; ++j) {\n"
        << "    if (block < p.group" << g << "[j].blocks) return body" << g << "::run(p.group" << g
        << "[j], block);\n"
        << "    block -= p.group" << g << "[j].blocks;\n  }\n";
  out << "}\n";
  source.text = out.str();
  return source;
}

}  // namespace tandem::cuda
