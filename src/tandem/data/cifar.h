// CIFAR-10 and CIFAR-100 in their binary form: the .bin files in a folder, or the official .tar.gz as it is.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "tandem/data/image_set.h"
#include "tandem/data/registry.h"

namespace tandem::data {

/// Images and labels of records that follow each other: `label_bytes` bytes (the last is the label), then 3072 bytes of
/// image. Appends; throws Error, beginning with `where`, for a part of a record or a label that is too high.
void read_cifar_records(const std::string& where, std::span<const uint8_t> bytes, int label_bytes,
                        int classes, std::vector<uint8_t>& images, std::vector<uint8_t>& labels);

std::optional<std::string> locate_cifar(const DatasetInfo& info, const std::string& data_dir);
Splits open_cifar(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
