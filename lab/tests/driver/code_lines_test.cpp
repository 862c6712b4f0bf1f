#include <gtest/gtest.h>

#include <string>

#include "lab/src/driver/code_lines.h"

namespace tandem::lab {
namespace {

const SourceText kPython{"models.py", R"(# models
import x

def pool(x):
    """One line."""
    return x  # counts


class LeNet(nn.Module):
    """A network.

    With a long text.
    """
    def __init__(self):
        self.conv = 1

    # a comment
    def forward(self, x):
        return pool(
            x)


def unused():
    return 0


MODELS = {"lenet": LeNet}
)"};

TEST(CodeLines, CountsADefinitionAndWhatItNames) {
  EXPECT_EQ(code_lines({kPython}, "lenet"), 6 + 2);
  EXPECT_EQ(code_lines({kPython}, "unused"), 2);
}

TEST(CodeLines, OfAnUnknownWorkloadAreNone) {
  EXPECT_EQ(code_lines({kPython}, "bert"), std::nullopt);
  EXPECT_EQ(code_lines({}, "lenet"), std::nullopt);
}

TEST(CodeLines, JoinsAClassWithItsMembersInCpp) {
  const SourceText header{"net.h", R"(// A network.
#pragma once
namespace zoo {
struct Other;
/// x -> logits.
class Cifar10Cnn : public Module {
 public:
  Tensor forward(const Tensor& x) override;

  Conv conv1{1, 2};
};
}  // namespace zoo
)"};
  const SourceText source{"net.cpp", R"(#include "net.h"
namespace zoo {
Tensor pooled(const Tensor& x) { return pool(x); }

Tensor Cifar10Cnn::forward(const Tensor& x) {
  // why
  return pooled(conv1(x));
}
}  // namespace zoo
)"};
  EXPECT_EQ(code_lines({header, source}, "cifar10_cnn"), 5 + 3 + 1);
}

TEST(CodeLines, OfEveryDriverAndWorkloadAreKnown) {
  const std::string home = TANDEM_SOURCE_DIR;
  for (const char* workload :
       {"lenet", "mnist_cnn", "cifar10_cnn", "cifar100_cnn", "svhn_cnn", "resnet18", "vgg16"})
    for (const char* file :
         {"/lab/listings/pytorch_models.py", "/lab/listings/libtorch/models.h",
          "/lab/listings/tensorflow_models.py", "/lab/listings/jax_models.py",
          "/lab/listings/onnxruntime_models.py", "/lab/listings/chainer_models.py",
          "/lab/listings/mxnet_models.py", "/lab/listings/theano_models.py", "/src/tandem/zoo"}) {
      const auto lines = code_lines_of_files({home + file}, workload);
      ASSERT_TRUE(lines) << workload << " in " << file;
      EXPECT_GT(*lines, 2) << workload << " in " << file;
      EXPECT_LT(*lines, 150) << workload << " in " << file;
    }
}

}  // namespace
}  // namespace tandem::lab
