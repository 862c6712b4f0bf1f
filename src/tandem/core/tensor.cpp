#include "tandem/core/tensor.h"

#include "tandem/core/backend.h"
#include "tandem/core/region.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"

namespace tandem {

Storage::Storage(Device device, size_t bytes)
    : data_(backend(device).allocate(device, bytes)), bytes_(bytes), device_(device) {}

Storage::Storage(Device device, void* external, size_t bytes, void (*release)(void*), void* context)
    : data_(external), bytes_(bytes), device_(device), release_(release), release_context_(context) {
  if (!release_) release_ = [](void*) {};
}

Storage::~Storage() {
  if (release_)
    release_(release_context_);
  else
    backend(device_).free(device_, data_, bytes_);
}

TensorImpl::TensorImpl() = default;
TensorImpl::~TensorImpl() = default;

Meta contiguous_meta(const Dims& shape, DType dtype, Device device) {
  Meta meta;
  set_contiguous(meta, shape, dtype, device);
  return meta;
}

void set_contiguous(Meta& meta, const Dims& shape, DType dtype, Device device) {
  meta.shape = shape;
  meta.strides = contiguous_strides(shape);
  meta.offset = 0;
  meta.dtype = dtype;
  meta.device = device;
}

void Tensor::throw_undefined() {
  throw Error("tensor: the handle must be defined; got an empty one. Make the tensor first.");
}

namespace {
char* first_element(const TensorImpl& impl) {
  return static_cast<char*>(impl.storage->data()) +
         impl.meta.offset * static_cast<int64_t>(bytes_of(impl.meta.dtype));
}
}  // namespace

void* Tensor::raw() const {
  TD_CHECK(!is_traced(), "data: a tensor inside a compiled callable has no values yet; got ", describe(*this),
           ". Return it from the callable and read the result.");
  refuse_while_tracing(
      "data", "what is read there would be the same at every later call",
      "Read the values before the call and pass them in, or compute with the tensor itself.");
  return first_element(*impl_);
}

bool Tensor::requires_grad() const {
  if (Tracer* tracer = current_tracer()) tracer->depends_on(*this, Tracer::Asked::requires_grad);
  return content().requires_grad;
}

Tensor Tensor::grad() const {
  if (Tracer* tracer = current_tracer()) tracer->depends_on(*this, Tracer::Asked::gradient);
  return content().grad ? Tensor(impl_->grad) : Tensor();
}

void Tensor::check_readable(const char* what, DType wanted) const {
  TD_CHECK(defined(), what, ": the tensor must be defined; got an empty handle.");
  TD_CHECK(dtype() == wanted, what, ": the element type asked for must be the tensor's; got ", wanted,
           " for ", describe(*this), ". cast() it first.");
}

Tensor& Tensor::set_requires_grad(bool value) {
  TD_CHECK(is_leaf(),
           "set_requires_grad: only leaves can be marked; this tensor is the result of an operation. "
           "detach() it first.");
  TD_CHECK(!value || is_floating(dtype()), "set_requires_grad: only floating types have gradients; got ",
           describe(*this), ".");
  const Tracer* tracer = current_tracer();
  if (!is_traced() || (tracer && (tracer->is_input(*this) || impl_->trace_serial != tracer->serial())))
    refuse_while_tracing(
        "set_requires_grad",
        "on an input or a tensor from outside it would act only while the callable is traced",
        "Call it before the compiled callable.");
  impl_->requires_grad = value;
  if (value) impl_->copied_by = nullptr;
  return *this;
}

namespace {
/// What changes gradients, in code that runs twice or is a part of one node.
void refuse_inside(const char* what) {
  TD_CHECK(
      !current_observer(), what,
      ": gradients of tensors must not be changed inside checkpoint(), which runs its function twice. Use "
      "grad() there, or do it outside.");
  BodyScope::refuse(what);
}
}  // namespace

void Tensor::set_grad(const Tensor& grad) {
  if (!grad.defined()) return zero_grad();
  TD_CHECK(grad.shape() == shape() && grad.dtype() == dtype() && grad.device() == device(),
           "set_grad: a gradient must match its tensor; got ", describe(grad), " for ", describe(*this), ".");
  Tracer* tracer = current_tracer();
  TD_CHECK(tracer || !grad.is_traced(),
           "set_grad: got a tensor of a compiled callable outside of it: ", describe(grad),
           ". Return it from the callable and use the result.");
  refuse_inside("set_grad");
  impl_->grad = tracer ? tracer->sets_gradient(*this, grad).ref() : grad.ref();
}

void Tensor::zero_grad() {
  refuse_inside("zero_grad");
  if (Tracer* tracer = current_tracer()) tracer->zeroes_gradient(*this);
  content().grad.reset();
}

void Tensor::backward() const { tandem::backward(*this); }

Tensor Tensor::detach() const {
  if (Tracer* tracer = current_tracer(); tracer && defined())
    if (Tensor traced = tracer->detached(*this); traced.defined()) return traced;
  auto copy = make_ref<TensorImpl>();
  copy->meta = meta();
  copy->storage = impl_->storage;
  copy->trace_id = impl_->trace_id;
  copy->trace_serial = impl_->trace_serial;
  copy->copied_by = impl_->copied_by;
  return Tensor(std::move(copy));
}

void Tensor::rebind(const Tensor& value) {
  refuse_while_tracing("rebind", "it would act only while the callable is traced",
                       "Rebind before the call, or assign() to the tensor.");
  TD_CHECK(is_leaf() && !value.is_traced() && !is_traced(),
           "rebind: only concrete leaves can be rebound; got ", describe(*this), ".");
  TD_CHECK(value.shape() == shape(), "rebind: the shapes must be equal; got ", value.shape(), " for ",
           shape(), ".");
  const Ref<Storage>& storage = value.impl()->storage;
  if (!(storage == impl_->storage))  // a change, for whoever compares versions
    impl_->earlier_changes += impl_->storage->version() + 1 - storage->version();
  impl_->meta = value.meta();
  impl_->storage = storage;
  impl_->copied_by = nullptr;
  impl_->grad.reset();
}

void check_target(const char* op, const Tensor& target) {
  if (const CopyMark* mark = target.impl()->copied_by) [[unlikely]]
    throw Error(str(op, ": the target must be a tensor of its own or a view of one; got ", describe(target),
                    ", a copy that ", mark->function,
                    "() made: the tensor it was taken from would not change. ", mark->instead,
                    " A clone() of the copy may be changed."));
  TD_CHECK(
      !has_overlap(target.shape(), target.strides()), op,
      ": the elements of the target must not share memory (an expanded view, or overlapping windows); got ",
      describe(target), ". Change the tensor it is a view of.");
}

Tensor without_mark(const Tensor& tensor) {
  if (!tensor.impl()->copied_by) return tensor;
  Tensor plain = tensor.detach();
  TensorImpl& impl = *plain.impl();
  impl.copied_by = nullptr;
  impl.requires_grad = tensor.requires_grad();
  impl.node = tensor.impl()->node;
  impl.node_output = tensor.impl()->node_output;
  return plain;
}

Tensor empty(const Dims& shape, DType dtype, Device device) {
  auto impl = make_ref<TensorImpl>();
  set_contiguous(impl->meta, shape, dtype, device);
  impl->storage = make_ref<Storage>(device, static_cast<size_t>(size_of(shape)) * bytes_of(dtype));
  return Tensor(std::move(impl));
}

Tensor from_host(const void* values, const Dims& shape, DType dtype, Device device) {
  Tensor out = empty(shape, dtype, device);
  backend(device).copy_from_host(device, out.impl()->storage->data(), values, out.impl()->storage->bytes());
  if (Tracer* tracer = current_tracer()) tracer->made_on_host(out);
  return out;
}

Tensor from_blob(void* data, const Dims& shape, DType dtype, Device device, void (*release)(void*),
                 void* context) {
  const size_t bytes = static_cast<size_t>(size_of(shape)) * bytes_of(dtype);
  TD_CHECK(data || bytes == 0, "from_blob: the pointer must not be null; got null for shape ", shape, ".");
  if (reinterpret_cast<uintptr_t>(data) % 64 != 0) {
    Tensor out = empty(shape, dtype, device);
    backend(device).copy_within(device, out.impl()->storage->data(), data, bytes);
    backend(device).synchronize(device);
    if (release) release(context);
    return out;
  }
  auto impl = make_ref<TensorImpl>();
  impl->meta = contiguous_meta(shape, dtype, device);
  impl->storage = make_ref<Storage>(device, data, bytes, release, context);
  return Tensor(std::move(impl));
}

std::vector<std::byte> host_bytes(const Tensor& tensor) {
  TD_CHECK(tensor.defined(), "read: the tensor must be defined; got an empty handle.");
  const Dim size = tensor.size();
  const size_t width = bytes_of(tensor.dtype());
  std::vector<std::byte> out(static_cast<size_t>(size) * width);
  const void* data = tensor.raw();  // refuses traced tensors, empty ones too
  if (size == 0) return out;
  // Copies the span of memory that the view covers, then picks the elements out of it in logical order.
  const Dims &shape = tensor.shape(), &strides = tensor.strides();
  if (tensor.is_contiguous()) {
    backend(tensor.device()).copy_to_host(tensor.device(), out.data(), data, out.size());
    return out;
  }
  Dim span = 1;
  for (int i = 0; i < shape.rank(); ++i) span += (shape[i] - 1) * strides[i];
  std::vector<std::byte> block(static_cast<size_t>(span) * width);
  backend(tensor.device()).copy_to_host(tensor.device(), block.data(), data, block.size());
  Dims index = Dims::filled(shape.rank(), 0);
  for (Dim i = 0; i < size; ++i) {
    Dim at = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) at += index[axis] * strides[axis];
    std::memcpy(out.data() + static_cast<size_t>(i) * width, block.data() + static_cast<size_t>(at) * width,
                width);
    for (int axis = shape.rank() - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
  }
  return out;
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return str(tensor.dtype(), " ", tensor.shape(), " on ", tensor.device());
}

}  // namespace tandem
