// `urdma up`: starts a node's daemon, waits until it is ready, and shows what is there. Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/commands.hpp"
#include "tools/daemon_client.hpp"
#include "tools/node_location.hpp"

namespace urdma::tools {
namespace {

constexpr int kReadyLimitMs = 15'000;
constexpr int kEndingLimitMs = 5'000;
constexpr int kLinkLimitMs = 1'500;
constexpr int kStepMs = 10;
constexpr int kLinkStepMs = 100;
constexpr const char* kReady = "ready";
constexpr int kReadyFd = 3;  // the daemon's

std::vector<std::string> daemon_command(const std::string& daemon, const std::string& directory,
                                        const UpOptions& options) {
  std::vector<std::string> command = {
      daemon, "--dir", directory, "--name", options.name, "--ready-fd", std::to_string(kReadyFd)};
  const auto add = [&command](const char* option, const std::string& value) {
    if (!value.empty()) command.insert(command.end(), {option, value});
  };
  for (const std::string& port : options.ports) command.insert(command.end(), {"--port", port});
  add("--idle", options.idle);
  add("--cores", options.cores);
  add("--engines", options.engines);
  add("--group", options.group);
  if (options.force_wire) command.emplace_back("--force-wire");
  if (options.no_convert) command.emplace_back("--no-convert");
  if (options.no_af_ib) command.emplace_back("--no-af-ib");
  return command;
}

// In the child: a session of its own, no terminal, nothing of the caller's open but `ready_fd`.
[[noreturn]] void become_daemon(char** arguments, int ready_fd) {
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, standard);
  // The pipe was opened with 0 to 2 in use or not: it may be kReadyFd already.
  if (ready_fd == kReadyFd) {
    ::fcntl(kReadyFd, F_SETFD, 0);
  } else {
    ::dup2(ready_fd, kReadyFd);
  }
  ::syscall(SYS_close_range, kReadyFd + 1, ~0U, 0);
  ::execv(arguments[0], arguments);
  const std::string sentence = fmt::format("cannot run {}: {}\n", arguments[0], std::strerror(errno));
  [[maybe_unused]] const ssize_t written = ::write(kReadyFd, sentence.data(), sentence.size());
  ::_exit(EXIT_FAILURE);
}

// The daemon's one line, without its end; "" when it ended or stayed silent.
std::string read_line(int fd) {
  std::string line;
  char buffer[512];
  pollfd waiting{fd, POLLIN, 0};
  while (line.find('\n') == std::string::npos && ::poll(&waiting, 1, kReadyLimitMs) > 0) {
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got <= 0) break;
    line.append(buffer, static_cast<std::size_t>(got));
  }
  return line.substr(0, line.find('\n'));
}

// Ready, or why not.
Status start_daemon(const std::vector<std::string>& command, const std::string& directory) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe");
  const pid_t child = ::fork();
  if (child < 0) return fail_errno(errno, "cannot start a process");
  if (child == 0) become_daemon(arguments.data(), ends[1]);
  ::close(ends[1]);
  const std::string line = read_line(ends[0]);
  ::close(ends[0]);
  if (line == kReady) return {};
  ::kill(child, SIGTERM);
  ::waitpid(child, nullptr, 0);
  if (!line.empty()) return fail(EIO, line);
  return fail(
      EIO, fmt::format("the daemon ended before it was ready; what it had to say is in {}/log", directory));
}

// The node that runs, once one that has just been killed is out of the way.
std::optional<RunningNode> find_living(const std::string& state, const std::string& name) {
  auto node = find_in(state, name);
  for (int waited_ms = 0; node && is_ending(node->pid) && waited_ms < kEndingLimitMs; waited_ms += kStepMs) {
    ::usleep(kStepMs * 1000);
    node = find_in(state, name);
  }
  return node;
}

bool is_up(const Json& port) { return port["state"] == "active"; }

bool all_up(const Json& document) {
  for (const Json& device : document["devices"]) {
    if (!is_up(device["port"])) return false;
  }
  return true;
}

// The kernel may take a second to say that a link runs which was set up just before: whoever comes from
// `ip link set ... up` and goes on to a program is to find the port active.
Result<Json> status_with_links(const std::string& directory) {
  auto document = ask_status(directory);
  for (int waited_ms = 0; document && !all_up(*document) && waited_ms < kLinkLimitMs;
       waited_ms += kLinkStepMs) {
    ::usleep(kLinkStepMs * 1000);
    document = ask_status(directory);
  }
  return document;
}

void show(const Json& document, const UpOptions& options) {
  fmt::print("node {} is up (process {})\n", options.name, document["pid"].get<int>());
  for (const Json& device : document["devices"]) {
    const Json& port = device["port"];
    fmt::print("\n  {}  port {}, {}, MTU {}\n", device["name"].get<std::string>(),
               port["spec"].get<std::string>(), port["state"].get<std::string>(),
               port["active_mtu"].get<int>());
    for (const Json& gid : port["gids"]) {
      fmt::print(
          "    GID {:<3} {}{}\n", gid["index"].get<int>(), gid["address"].get<std::string>(),
          gid["interface"].get<std::string>().empty() ? "" : " of " + gid["interface"].get<std::string>());
    }
    if (!is_up(port)) {
      const std::string interface = port["interface"].get<std::string>();
      fmt::print("    the link of {} is down: look at its other end\n",
                 interface.empty() ? device["name"].get<std::string>() : interface);
    }
    if (port["gids"].empty()) fmt::print("    no addresses yet: give the interface one\n");
  }
  const std::string name = options.name == kDefaultNode ? "" : " --name " + options.name;
  fmt::print("\nRun programs with:  urdma run{} -- PROGRAM     (try ibv_devinfo -v)\n", name);
  fmt::print("Look at it with:    urdma status{}\nStop it with:       urdma down{}\n", name, name);
}

}  // namespace

int up(const UpOptions& options) {
  if (auto good = check_name(options.name); !good) return complain(good.error().message);
  const std::string state = state_directory();
  if (const auto node = find_living(state, options.name)) {
    return complain(fmt::format("node '{}' is running already, as process {}", options.name, node->pid));
  }
  if (auto done = prepare_state_directory(state); !done) return complain(done.error().message);
  const std::string daemon = find_part({"../sbin/urdmad", "../datapath/urdmad", "urdmad"});
  if (daemon.empty())
    return complain(fmt::format("urdmad is not in {}/../sbin, where it belongs", own_directory()));
  const std::string directory = state + "/" + options.name;
  if (auto done = start_daemon(daemon_command(daemon, directory, options), directory); !done) {
    return complain(done.error().message);
  }
  const auto document = status_with_links(directory);
  if (!document) return complain(document.error().message);
  show(*document, options);
  return EXIT_SUCCESS;
}

}  // namespace urdma::tools
