// Talking to Tandem's driver within the test's own process, and the files of a small cell.
#pragma once

#include <gtest/gtest.h>

#include <sstream>

#include "lab/src/inputs/write_inputs.h"
#include "lab/src/tandem_driver/driver.h"
#include "tests/support/temp_folder.h"

namespace tandem::lab {

using nlohmann::json;
using tandem::testing::TempFolder;

/// The lines that the driver answers to these lines.
inline std::vector<json> answers_to_text(const std::string& lines) {
  std::istringstream in(lines);
  std::ostringstream out;
  EXPECT_EQ(run_tandem_driver(in, out), 0);
  std::vector<json> answers;
  std::istringstream written(out.str());
  for (std::string line; std::getline(written, line);) answers.push_back(json::parse(line));
  return answers;
}

/// The same for requests, which are numbered from 1 on.
inline std::vector<json> answers_to(std::vector<json> requests) {
  std::string lines;
  int id = 0;
  for (json& request : requests) {
    request["id"] = ++id;
    lines += request.dump() + "\n";
  }
  return answers_to_text(lines);
}

/// A workload with made-up data.
class SmallCell {
 public:
  SmallCell(const std::string& name, const std::vector<int64_t>& input, int64_t train, int64_t test)
      : workload(load_workload(name)), network(load_network(workload, input)) {
    // An empty data_dir, so that no data set of this machine is found.
    std::filesystem::create_directory(folder / "none");
    data = write_data(folder / "data", workload, network, train, test, 5, folder / "none");
  }

  /// A request `prepare` in the track equal, without dropout.
  json prepare(const std::string& variant, const std::string& phase = "train", int64_t batch = 8) const {
    return {{"call", "prepare"},         {"workload", workload.definition},
            {"variant", variant},        {"phase", phase},
            {"track", "equal"},          {"batch", batch},
            {"device", "cpu"},           {"threads", 2},
            {"precision", "f32"},        {"seed", 7},
            {"dropout", false},          {"network", network.json()},
            {"weights", {{"hash", 40}}}, {"data", data.files},
            {"switches", json::object()}};
  }

  TempFolder folder;
  Workload workload;
  Network network;
  DataFolder data;
};

/// Fails the test where the answer is no success.
inline const json& succeeded(const json& answer) {
  EXPECT_TRUE(answer.value("ok", false)) << answer.dump().substr(0, 600);
  return answer;
}

inline void expect_near(const json& got, const json& want, double tolerance, const std::string& what) {
  if (want.is_number()) {
    ASSERT_TRUE(got.is_number()) << what;
    EXPECT_NEAR(got.get<double>(), want.get<double>(), tolerance * (1 + std::abs(want.get<double>())))
        << what;
    return;
  }
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [key, value] : want.items())
    expect_near(want.is_array() ? got.at(std::stoul(key)) : got.at(key), value, tolerance, what + " " + key);
}

}  // namespace tandem::lab
