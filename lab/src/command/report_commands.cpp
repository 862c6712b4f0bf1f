// tandem lab report DIR, publish DIR TO and compare DIR_A DIR_B: from records to answers.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/src/command/commands.h"
#include "lab/src/record/publish.h"
#include "lab/src/report/compare.h"
#include "lab/src/report/report.h"
#include "tandem/io/file.h"

namespace tandem::lab {

void add_report(CLI::App& app, Action& action) {
  struct Flags {
    std::string folder;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd = app.add_subcommand(
      "report", "write report.html, report.md and the CSV tables of a study, and show its answers");
  cmd->add_option("DIR", flags->folder, "folder of a study, the --out of 'tandem lab run'")->required();
  cmd->add_flag("--json", flags->json, "print the files' names as one JSON object");
  cmd->callback([flags, &action] {
    action = [flags] {
      const std::vector<std::string> files = write_report(flags->folder);
      const Results results = load_results(flags->folder);
      const Analysis analysis = analyse(results);
      if (flags->json) {
        const nlohmann::ordered_json line = {
            {"event", "report"}, {"warnings", report_warnings(results, analysis)}, {"files", files}};
        std::printf("%s\n",
                    line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
        return;
      }
      std::printf("%s", terminal_report(results, analysis, terminal_width()).c_str());
      for (const std::string& file : files) std::printf("%s\n", file.c_str());
    };
  });
}

void add_publish(CLI::App& app, Action& action) {
  struct Flags {
    std::string from, to;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd = app.add_subcommand(
      "publish",
      "copy a study's records to a folder for others: packed, without the folders of this machine");
  cmd->add_option("DIR", flags->from, "folder of a study, the --out of 'tandem lab run'")->required();
  cmd->add_option("TO", flags->to, "the folder to write, new or published before")->required();
  cmd->callback([flags, &action] {
    action = [flags] {
      for (const std::string& file : publish(flags->from, flags->to)) std::printf("%s\n", file.c_str());
      const Results results = load_results(flags->to);
      int64_t asked = 0;
      for (const Json& cell : results.study.value("cells", Json::array()))
        asked += cell.value("effort", Json::object()).value("runs", int64_t{0});
      const auto have = std::count_if(results.runs.begin(), results.runs.end(),
                                      [](const Run& run) { return run.status != Status::disturbed; });
      if (have < asked)
        std::printf("%lld of the study's %lld runs\n", static_cast<long long>(have),
                    static_cast<long long>(asked));
    };
  });
}

void add_compare(CLI::App& app, Action& action) {
  struct Flags {
    std::string a, b, html;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd =
      app.add_subcommand("compare", "hold two studies against each other: before and after, or two machines");
  cmd->add_option("DIR_A", flags->a, "folder of a study")->required();
  cmd->add_option("DIR_B", flags->b, "folder of another")->required();
  cmd->add_option("--html", flags->html, "also write a page to this file");
  cmd->callback([flags, &action] {
    action = [flags] {
      const FolderComparison comparison = compare_folders(flags->a, flags->b);
      std::printf("%s", comparison_text(comparison).c_str());
      if (!flags->html.empty()) {
        const std::string page = comparison_html(comparison);
        io::write_atomically(flags->html, [&](io::OutputFile& file) { file.write(page); });
        std::printf("%s\n", flags->html.c_str());
      }
    };
  });
}

}  // namespace tandem::lab
