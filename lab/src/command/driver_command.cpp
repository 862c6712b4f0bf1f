// tandem lab driver: Tandem's own driver, which speaks the protocol on stdin and stdout.
#include <unistd.h>

#include <iostream>
#include <streambuf>

#include "lab/src/command/commands.h"
#include "lab/src/tandem_driver/driver.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// Writes to a file descriptor that nobody else has.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(int fd) : fd_(fd) {}

 private:
  int_type overflow(int_type c) override {
    if (c != traits_type::eof()) text_ += static_cast<char>(c);
    return c;
  }
  std::streamsize xsputn(const char* data, std::streamsize n) override {
    text_.append(data, static_cast<size_t>(n));
    return n;
  }
  int sync() override {
    size_t done = 0;
    while (done < text_.size()) {
      const ssize_t n = ::write(fd_, text_.data() + done, text_.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return -1;
      done += static_cast<size_t>(n);
    }
    text_.clear();
    return 0;
  }
  int fd_;
  std::string text_;
};

}  // namespace

void add_driver(CLI::App& app, Action& action) {
  CLI::App* cmd =
      app.add_subcommand("driver", "Tandem's own driver: speaks lab/docs/protocol.md on stdin and stdout");
  cmd->callback([&action] {
    action = [] {
      // What a library prints must not get between the answers: it goes to standard error.
      const int answers = ::dup(STDOUT_FILENO);
      TD_CHECK(answers >= 0 && ::dup2(STDERR_FILENO, STDOUT_FILENO) >= 0,
               "driver: standard output and standard error must be open; got one that is closed. Start it "
               "from the lab.");
      DescriptorBuffer buffer(answers);
      std::ostream out(&buffer);
      std::ios::sync_with_stdio(false);
      const int status = run_tandem_driver(std::cin, out);
      TD_CHECK(status == 0, "driver: requests must come as the protocol says; got a failure with status ",
               status, ".");
    };
  });
}

}  // namespace tandem::lab
