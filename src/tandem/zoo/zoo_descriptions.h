// The zoo's models as descriptions: the same layers, names, sizes and initial values as the classes beside them.
#pragma once

#include "tandem/zoo/description.h"

namespace tandem::zoo {

ModelDescription lenet_description();
ModelDescription mlp_description();
ModelDescription mnist_cnn_description();
ModelDescription cifar10_cnn_description();
ModelDescription cifar100_cnn_description();
ModelDescription svhn_cnn_description();
ModelDescription alexnet_description();
ModelDescription resnet18_description();
ModelDescription vgg16_description();

}  // namespace tandem::zoo
