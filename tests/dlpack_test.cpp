// DLPack in and out. What other frameworks do with it is played by the structures of the specification.
// ctest: asan leaks
#include "tandem/io/dlpack.h"

#include <gtest/gtest.h>

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

extern "C" {
struct DLManagedTensor {
  struct {
    void* data;
    struct {
      int32_t type, id;
    } device;
    int32_t ndim;
    struct {
      uint8_t code, bits;
      uint16_t lanes;
    } dtype;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
  } t;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
}

namespace tandem {
namespace {

TEST(Dlpack, ATensorLeavesWithItsMemoryShapeAndStrides) {
  const Tensor x = transpose(from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3}), 0, 1);
  DLManagedTensor* out = io::to_dlpack(x);
  EXPECT_EQ(out->t.data, x.raw());
  EXPECT_EQ(out->t.device.type, 1);
  ASSERT_EQ(out->t.ndim, 2);
  EXPECT_EQ(out->t.shape[0], 3);
  EXPECT_EQ(out->t.strides[0], 1);
  EXPECT_EQ(out->t.strides[1], 3);
  EXPECT_EQ(int{out->t.dtype.code}, 2);
  EXPECT_EQ(int{out->t.dtype.bits}, 32);
  out->deleter(out);
}

TEST(Dlpack, WhatLeftComesBackOverTheSameMemoryForEveryType) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    const Tensor x = ones({2, 3}, dtype);
    const Tensor back = io::from_dlpack(io::to_dlpack(x));
    EXPECT_EQ(back.raw(), x.raw()) << dtype;
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.shape(), x.shape());
  }
}

/// Somebody else's tensor of 6 floats.
struct Foreign {
  alignas(64) float values[32] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  int released = 0;
  DLManagedTensor managed{{values, {1, 0}, 2, {2, 32, 1}, shape, strides, 0},
                          this,
                          [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->context)->released; }};
};

TEST(Dlpack, ForeignMemoryIsUsedInPlaceAndGivenBackOnce) {
  Foreign f;
  {
    const Tensor x = io::from_dlpack(&f.managed);
    EXPECT_EQ(x.raw(), f.values);
    const Tensor view = select(x, 0, 1);
    f.values[4] = 40;
    EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{3, 40, 5}));
    EXPECT_EQ(f.released, 0);
  }
  EXPECT_EQ(f.released, 1);
}

TEST(Dlpack, StridesOffsetsAndAbsentStridesAreHeeded) {
  Foreign f;
  f.shape[0] = 3, f.shape[1] = 2, f.strides[0] = 1, f.strides[1] = 3;
  EXPECT_EQ(io::from_dlpack(&f.managed).to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  f.managed.t.strides = nullptr;
  f.managed.t.byte_offset = 4;  // not aligned: copied
  f.shape[0] = 1;
  const Tensor x = io::from_dlpack(&f.managed);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(f.released, 2) << "a copy gives the memory back at once";
}

TEST(Dlpack, WhatCannotBeTakenIsRefusedAndStaysTheCallers) {
  const auto refused = [](const char* text, void (*spoil)(Foreign&)) {
    Foreign f;
    spoil(f);
    try {
      io::from_dlpack(&f.managed);
      ADD_FAILURE() << "not refused: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
    EXPECT_EQ(f.released, 0);
  };
  refused("element type", [](Foreign& f) { f.managed.t.dtype = {5, 64, 1}; });
  refused("lanes", [](Foreign& f) { f.managed.t.dtype.lanes = 4; });
  refused("axes", [](Foreign& f) { f.managed.t.ndim = 9; });
  refused("device type 7", [](Foreign& f) { f.managed.t.device.type = 7; });
  refused("number of a device", [](Foreign& f) { f.managed.t.device.id = -1; });
  refused("negative", [](Foreign& f) { f.strides[0] = -3; });
  refused("negative", [](Foreign& f) { f.shape[0] = -2; });
  refused("null", [](Foreign& f) { f.managed.t.data = nullptr; });
  EXPECT_THROW(io::from_dlpack(nullptr), Error);
  EXPECT_THROW(io::to_dlpack(Tensor()), Error);
  EXPECT_THROW(io::to_dlpack(ones({2}).set_requires_grad()), Error);
}

}  // namespace
}  // namespace tandem
