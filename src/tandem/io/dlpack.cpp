#include "tandem/io/dlpack.h"

#include <memory>

#include "tandem/core/backend.h"

// DLPack's binary interface, written down from its specification.
extern "C" {
struct DLDevice {
  int32_t device_type;  // 1 CPU, 2 CUDA, 3 pinned host memory
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;  // 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
}

namespace tandem::io {

namespace {

constexpr int32_t kDlCpu = 1, kDlCuda = 2, kDlPinned = 3;

struct TypeRow {
  DType dtype;
  uint8_t code, bits;
};
constexpr TypeRow kTypes[] = {
    {DType::f64, 2, 64}, {DType::f32, 2, 32}, {DType::bf16, 4, 16},  {DType::f16, 2, 16}, {DType::i8, 0, 8},
    {DType::i16, 0, 16}, {DType::i32, 0, 32}, {DType::i64, 0, 64},   {DType::u8, 1, 8},   {DType::u16, 1, 16},
    {DType::u32, 1, 32}, {DType::u64, 1, 64}, {DType::boolean, 6, 8}};

/// What an exported tensor needs to stay alive.
struct Exported {
  DLManagedTensor managed;
  Tensor tensor;
  Dims shape, strides;
};

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& tensor) {
  TD_CHECK(tensor.defined(), "to_dlpack: the tensor must be defined; got an empty handle.");
  TD_CHECK(!tensor.requires_grad(), "to_dlpack: a tensor on the tape cannot leave; got ", describe(tensor),
           " that requires a gradient. detach() it first.");
  auto out = std::make_unique<Exported>(Exported{{}, tensor, tensor.shape(), tensor.strides()});
  const Device device = tensor.device();
  DLTensor& t = out->managed.dl_tensor;
  t.data = tensor.raw();  // refuses traced tensors
  t.device = device.is_cpu() ? DLDevice{kDlCpu, 0} : DLDevice{kDlCuda, device.index};
  t.ndim = tensor.rank();
  for (const TypeRow& row : kTypes)
    if (row.dtype == tensor.dtype()) t.dtype = {row.code, row.bits, 1};
  t.shape = &out->shape[0];
  t.strides = &out->strides[0];
  backend(device).synchronize(device);
  out->managed.manager_ctx = out.get();
  out->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); };
  return &out.release()->managed;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  TD_CHECK(managed, "from_dlpack: the pointer must not be null; got null.");
  const DLTensor& t = managed->dl_tensor;
  const TypeRow* type = nullptr;
  for (const TypeRow& row : kTypes)
    if (row.code == t.dtype.code && row.bits == t.dtype.bits && t.dtype.lanes == 1) type = &row;
  TD_CHECK(type,
           "from_dlpack: the element type must be a float, bfloat, int, uint or bool of one lane; got code ",
           int{t.dtype.code}, ", ", int{t.dtype.bits}, " bits, ", t.dtype.lanes, " lanes. Convert it first.");
  TD_CHECK(t.ndim >= 0 && t.ndim <= kMaxRank, "from_dlpack: at most ", kMaxRank, " axes are taken; got ",
           t.ndim, ".");
  const int32_t place = t.device.device_type;
  TD_CHECK(place == kDlCpu || place == kDlPinned || place == kDlCuda,
           "from_dlpack: the memory must be the CPU's or a CUDA device's; got device type ", place, ".");
  TD_CHECK(t.device.device_id >= 0 && t.device.device_id < 256,
           "from_dlpack: the number of a device must be in 0 … 255; got ", t.device.device_id, ".");
  Meta meta;
  meta.dtype = type->dtype;
  meta.device =
      place == kDlCuda ? Device{DeviceKind::cuda, static_cast<uint8_t>(t.device.device_id)} : Device{};
  for (int i = 0; i < t.ndim; ++i) meta.shape.push_back(t.shape[i]);
  const Dim size = size_of(meta.shape);  // refuses negative sizes
  meta.strides = contiguous_strides(meta.shape);
  Dim span = size ? 1 : 0;
  for (int i = 0; i < t.ndim; ++i) {
    if (t.strides) meta.strides[i] = t.strides[i];
    TD_CHECK(meta.strides[i] >= 0 || meta.shape[i] < 2, "from_dlpack: strides must not be negative; got ",
             meta.strides[i], " on axis ", i, ". Copy the tensor first.");
    if (size) span += (meta.shape[i] - 1) * meta.strides[i];
  }
  char* data = static_cast<char*>(t.data) + t.byte_offset;
  TD_CHECK(t.data || size == 0, "from_dlpack: the memory must not be null; got null for shape ", meta.shape,
           ".");
  backend(meta.device);  // refuses a device that is not here

  const auto release = [](void* context) {
    auto* from = static_cast<DLManagedTensor*>(context);
    if (from->deleter) from->deleter(from);
  };
  const Dim bytes = span * static_cast<Dim>(bytes_of(meta.dtype));
  Tensor block = from_blob(data, {bytes}, DType::u8, meta.device, release, managed);
  auto impl = make_ref<TensorImpl>();
  impl->meta = meta;
  impl->storage = block.impl()->storage;
  return Tensor(std::move(impl));
}

}  // namespace tandem::io
