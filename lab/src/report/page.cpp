#include "lab/src/report/page.h"

#include "lab/src/report/grid.h"
#include "tandem/io/svg.h"

// The text of report.css, blocks.css and report.js, put into the program by the build (cmake/embed.cmake).
// The ten colours of systems are those of Paul Tol's and Okabe and Ito's palettes that stay apart for colour-blind eyes.
extern const char* const tandem_embedded_report_css;
extern const char* const tandem_embedded_blocks_css;
extern const char* const tandem_embedded_report_js;

namespace tandem::lab {
namespace {

/// blocks.css shows rows as blocks, with each value beside its column's name. This is its text for tables that are narrower than
/// the width they need, one copy for each such width; `T` in the file is the table.
std::string block_style() {
  std::string style;
  for (const int width : block_widths()) {
    std::string rules = tandem_embedded_blocks_css;
    const std::string table = ".blocks-" + std::to_string(width);
    for (size_t at = rules.find("T t"); at != std::string::npos; at = rules.find("T t", at + table.size()))
      rules.replace(at, 1, table);
    style += "@container (max-width: " + std::to_string(width) + "em) {\n" + rules + "}\n";
  }
  return style;
}

}  // namespace

std::string html_page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         io::escaped(title) + "</title>\n<style>\n" + tandem_embedded_report_css + block_style() +
         "</style>\n</head>\n<body>\n" + "<button id=\"theme\" type=\"button\">light / dark</button>\n" +
         body + "\n<script>\n" + tandem_embedded_report_js + "</script>\n</body>\n</html>\n";
}

}  // namespace tandem::lab
