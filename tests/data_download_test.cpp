// Downloads, against a server of this test on this machine: whole, resumed, cut off, corrupted, refused.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "tandem/data/download.h"
#include "tandem/data/places.h"
#include "tandem/io/md5.h"
#include "tandem/io/sha256.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::data {
namespace {

using testing::message_of;
using testing::read_text;
using testing::TempFolder;
using testing::write_text;

/// Serves one content under every name but /none, which is not found.
class Server {
 public:
  explicit Server(std::string content) : content_(std::move(content)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::string url(const std::string& name = "file") const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/" + name;
  }

  std::atomic<bool> ranges{true};
  std::atomic<long> cut_after{-1};  // bytes of an answer after which the connection breaks
  std::atomic<int> requests{0}, ranged{0};

 private:
  void serve() {
    while (!stopping_) {
      const int client = ::accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      std::string request;
      char buffer[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = ::read(client, buffer, sizeof(buffer));
        if (got <= 0) break;
        request.append(buffer, static_cast<size_t>(got));
      }
      answer(client, request);
      ::close(client);
    }
  }

  void answer(int client, const std::string& request) {
    ++requests;
    size_t from = 0;
    const size_t range = request.find("Range: bytes=");
    if (range != std::string::npos) {
      ++ranged;
      if (ranges) from = std::strtoul(request.c_str() + range + 13, nullptr, 10);
    }
    std::string head = "HTTP/1.1 200 OK\r\n";
    if (request.starts_with("GET /none ")) {
      send(client, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
      return;
    }
    if (from > 0 && from >= content_.size()) {
      send(client, "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
      return;
    }
    if (from > 0)
      head = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(from) + "-" +
             std::to_string(content_.size() - 1) + "/" + std::to_string(content_.size()) + "\r\n";
    head += "Content-Length: " + std::to_string(content_.size() - from) + "\r\nConnection: close\r\n\r\n";
    const long cut = cut_after;
    send(client, head + content_.substr(from, cut < 0 ? std::string::npos : static_cast<size_t>(cut)));
  }

  static void send(int client, const std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t put = ::send(client, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (put <= 0) return;
      done += static_cast<size_t>(put);
    }
  }

  std::string content_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class Download : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("curl --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no curl here";
    setenv("no_proxy", "127.0.0.1", 1);
    content_.resize(300000);
    for (size_t i = 0; i < content_.size(); ++i) content_[i] = static_cast<char>(i * i >> 3);
  }
  DownloadOptions options(const std::string& checksum = "") const {
    DownloadOptions made;
    made.checksum = checksum.empty() ? "md5:" + io::md5(content_) : checksum;
    return made;
  }
  std::string content_;
  TempFolder folder_;
  const std::string path_ = folder_ / "deep/folder/file.bin", part_ = path_ + ".part";
};

TEST_F(Download, GetsAWholeFileOnce) {
  Server server(content_);
  int64_t last = 0;
  DownloadOptions with_progress = options();
  with_progress.progress = [&](int64_t bytes) { last = bytes; };
  download(server.url(), path_, with_progress);
  EXPECT_EQ(read_text(path_), content_);
  EXPECT_EQ(last, 300000);
  EXPECT_FALSE(std::filesystem::exists(part_));
  download(server.url(), path_, options("sha256:" + io::sha256(content_)));
  EXPECT_EQ(server.requests, 1) << "a file with the right sum is not fetched again";
  write_text(path_, "damaged");
  download(server.url(), path_, options());
  EXPECT_EQ(read_text(path_), content_);
}

TEST_F(Download, GoesOnWhereAnEarlierOneEnded) {
  Server server(content_);
  std::filesystem::create_directories(folder_ / "deep/folder");
  write_text(part_, content_.substr(0, 123456));
  download(server.url(), path_, options());
  EXPECT_EQ(read_text(path_), content_);
  EXPECT_EQ(server.requests, 1);
  EXPECT_EQ(server.ranged, 1);
  std::filesystem::remove(path_);
  write_text(part_, content_);  // all of it: the server has nothing to add
  download(server.url(), path_, options());
  EXPECT_EQ(read_text(path_), content_);
}

TEST_F(Download, AConnectionThatBreaksIsTakenUpAgain) {
  Server server(content_);
  server.cut_after = 120000;
  download(server.url(), path_, options());
  EXPECT_EQ(read_text(path_), content_);
  EXPECT_EQ(server.requests, 3);
  EXPECT_EQ(server.ranged, 2);
  std::filesystem::remove(path_);
  server.cut_after = 50000;
  const std::string message = message_of<Error>([&] { download(server.url(), path_, options()); });
  EXPECT_HAS(message, "what is here is continued");
  EXPECT_EQ(read_text(part_), content_.substr(0, 150000)) << "three tries";
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(Download, AServerThatCannotContinueIsAskedFromTheStart) {
  Server server(content_);
  server.ranges = false;
  std::filesystem::create_directories(folder_ / "deep/folder");
  write_text(part_, content_.substr(0, 1000));
  download(server.url(), path_, options());
  EXPECT_EQ(read_text(path_), content_);
}

TEST_F(Download, AWrongPartIsThrownAwayAndAWrongFileRefused) {
  Server server(content_);
  std::filesystem::create_directories(folder_ / "deep/folder");
  write_text(part_, std::string(5000, 'x'));  // of another file
  download(server.url(), path_, options());
  EXPECT_EQ(read_text(path_), content_);
  EXPECT_EQ(server.requests, 2);
  std::filesystem::remove(path_);
  const std::string wrong = "md5:" + io::md5("another");
  const std::string message = message_of<Error>([&] { download(server.url(), path_, options(wrong)); });
  EXPECT_HAS(message, "must have the md5 sum " + io::md5("another") + "; it has " + io::md5(content_));
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(part_));
}

TEST_F(Download, FailuresNameTheirCause) {
  Server server(content_);
  EXPECT_HAS(message_of<Error>([&] { download(server.url("none"), path_, options()); }), "404");
  EXPECT_FALSE(std::filesystem::exists(part_));
  DownloadOptions without = options();
  without.program = "no-such-program";
  EXPECT_HAS(message_of<Error>([&] { download(server.url(), path_, without); }), "apt-get install curl");
  EXPECT_HAS(message_of<Error>([&] { download(server.url(), path_, options("crc:12")); }),
             "md5:… or sha256:…");
  write_text(folder_ / "plain", "a file");
  EXPECT_HAS(message_of<Error>([&] { download(server.url(), folder_ / "plain/x", options()); }),
             "`data_dir`");
  EXPECT_HAS(message_of<Error>([&] { download("http://127.0.0.1:1/x", path_, options()); }),
             "Check the network");
  struct Stop {};
  DownloadOptions stopped = options();
  stopped.progress = [](int64_t) { throw Stop(); };
  EXPECT_THROW(download(server.url(), path_, stopped), Stop);
  download(server.url(), path_, options());
  EXPECT_EQ(read_text(path_), content_) << "after it was stopped";
}

TEST_F(Download, OnlySetsWithASourceCanBeFetched) {
  EXPECT_HAS(message_of<Error>([&] { download_dataset("digits", folder_.path()); }), "built in");
  EXPECT_HAS(message_of<Error>([&] { download_dataset("nothing", folder_.path()); }), "must be one of");
  for (const std::string& name : dataset_names())
    for (const RemoteFile& file : dataset_info(name).files) {
      EXPECT_TRUE(file.checksum.starts_with("md5:") && file.checksum.size() == 36) << file.name;
      EXPECT_TRUE(file.url.ends_with(file.name)) << file.url;
    }
  EXPECT_EQ(download_folder("svhn", folder_.path()), folder_ / "svhn");
}

TEST_F(Download, APartThatCannotBeRemovedIsAnErrorAndNotAnotherRequest) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can make a file that another user may write but not remove";
  Server server(content_);
  const std::string path = folder_ / "file";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 01777), 0);
  write_text(path + ".part", content_ + "more");  // longer than the file: the server cannot continue it
  ASSERT_EQ(::chmod((path + ".part").c_str(), 0666), 0);
  ASSERT_EQ(::seteuid(65534), 0);
  const std::string message = message_of<Error>([&] { download(server.url(), path, options()); });
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_HAS(message, "cannot remove '" + path + ".part'");
  EXPECT_EQ(server.requests, 1);
}

TEST_F(Download, WhatIsNoFileInThePlaceOfThePartIsRefusedBeforeCurlMeetsIt) {
  Server server(content_);
  const std::string path = folder_ / "file";
  ASSERT_EQ(::mkfifo((path + ".part").c_str(), 0666), 0);
  EXPECT_HAS(message_of<Error>([&] { download(server.url(), path); }), "must be a regular file or not exist");
  std::filesystem::remove(path + ".part");
  ASSERT_EQ(::symlink("/dev/full", (path + ".part").c_str()), 0);
  EXPECT_HAS(message_of<Error>([&] { download(server.url(), path); }), "must be a regular file or not exist");
  std::filesystem::remove(path + ".part");
  ASSERT_EQ(::mkfifo((path + ".part.messages").c_str(), 0666), 0);  // ours: it is removed
  download(server.url(), path);
  EXPECT_EQ(read_text(path), content_);
}

}  // namespace
}  // namespace tandem::data
