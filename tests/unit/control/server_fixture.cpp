// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/unit/control/server_fixture.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <iterator>

#include "datapath/control/daemon.hpp"

namespace urdma::control {
namespace {

[[noreturn]] void run_daemon(const std::string& directory, int ready_fd) {
  spdlog::set_level(spdlog::level::off);
  DaemonWords words;
  words.directory = directory;
  auto opened = NodeDirectory::open(directory, std::nullopt);
  auto daemon =
      opened ? Daemon::start(*judge(words), std::move(*opened)) : tl::make_unexpected(opened.error());
  const std::string line = daemon ? "ready" : daemon.error().message;
  if (::write(ready_fd, line.data(), line.size()) > 0) ::close(ready_fd);
  if (daemon) (*daemon)->run();
  ::_exit(0);
}

std::ptrdiff_t thread_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}
const std::ptrdiff_t kThreadsAtStart = thread_count();  // TSan has one of its own

// Earlier tests may have left threads that close descriptors aside: a fork with them would have their locks.
void wait_for_other_threads() {
  for (int waited_ms = 0; thread_count() > kThreadsAtStart && waited_ms < 2000; ++waited_ms) ::usleep(1000);
}

}  // namespace

void ServerTest::SetUpTestSuite() {
  wait_for_other_threads();
  char pattern[] = "/tmp/urdma-unit-XXXXXX";
  node = std::string(::mkdtemp(pattern)) + "/node";
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  daemon = ::fork();
  if (daemon == 0) run_daemon(node, ends[1]);
  ::close(ends[1]);
  std::array<char, 512> line{};
  ASSERT_GT(::read(ends[0], line.data(), line.size() - 1), 0);
  ::close(ends[0]);
  ASSERT_STREQ(line.data(), "ready");
}

void ServerTest::TearDownTestSuite() {
  ::kill(daemon, SIGTERM);
  int status = -1;
  ::waitpid(daemon, &status, 0);
  EXPECT_EQ(status, 0) << "the daemon must outlive every client";
  std::filesystem::remove_all(std::filesystem::path(node).parent_path());
}

nlohmann::json ServerTest::status() {
  Connection connection(connect_to(node + "/control.sock"));
  EXPECT_TRUE(connection.send({static_cast<std::uint32_t>(abi::MessageType::kStatus), 0, 1}, {}, {}));
  const auto reply = next_message(connection);
  if (!reply || reply->fds.empty()) return {};
  std::string text(body_of<abi::StatusReply>(*reply).json_bytes, '\0');
  EXPECT_EQ(::pread(reply->fds[0].get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return nlohmann::json::parse(text);
}

bool ServerTest::has_sessions_within(std::size_t count, int limit_ms) {
  for (int waited_ms = 0; waited_ms < limit_ms; waited_ms += 10) {
    if (status()["sessions"].size() == count) return true;
    ::usleep(10'000);
  }
  return false;
}

}  // namespace urdma::control
