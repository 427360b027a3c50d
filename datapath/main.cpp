// urdmad: the daemon of a node. Reads its command line, cleans its environment, starts the daemon, says on
// --ready-fd how that went, and runs until SIGTERM or SIGINT. Main thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "datapath/control/daemon.hpp"
#include "urdma/abi/control.hpp"

namespace {

using urdma::control::Daemon;
using urdma::control::DaemonOptions;
using urdma::control::DaemonWords;
using urdma::control::NodeDirectory;

constexpr std::size_t kLogBytes = std::size_t{1} << 20;
constexpr std::size_t kOldLogs = 1;
constexpr mode_t kUmask = 022;
constexpr const char* kReady = "ready";

// A program that the daemon's own drivers load (libibverbs behind mlx5, for one) must not find urdma in
// the environment. A preloaded library is in this process already: so it starts anew without.
void clean_environment(char** arguments) {
  for (const char* name : {"RDMAV_DRIVERS", "IBV_DRIVERS", urdma::abi::kNodeVariable}) ::unsetenv(name);
  if (::getenv("LD_PRELOAD") == nullptr) return;
  ::unsetenv("LD_PRELOAD");
  ::execv("/proc/self/exe", arguments);
  std::perror("urdmad: cannot start again without LD_PRELOAD");
}

void add_options(CLI::App& app, DaemonWords& words) {
  app.add_option("--dir", words.directory, "the node's directory")->required();
  app.add_option("--name", words.name, "the node's name, for people");
  app.add_option("--port", words.ports,
                 "a port: loopback, af_packet:IFACE or vdev:ARGUMENTS,ip=ADDRESS/LEN; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--idle", words.idle, "what engines do without work: poll, adaptive or interrupt");
  app.add_option("--cores", words.cores, "the cores for engines, one each: 2, 0,2 or 0-3");
  app.add_option("--engines", words.engines, "how many engines, on no core in particular (1)");
  app.add_option("--group", words.group, "for root: the group that may use the node");
  app.add_flag("--force-wire", words.force_wire, "two ends on this node exchange packets, for tests");
  app.add_flag("--no-convert", words.no_convert, "never turn a program's private memory into shared memory");
  app.add_flag("--no-af-ib", words.no_af_ib,
               "addresses of AF_IB cannot be bound, as with kernels that librdmacm has older commands for");
  app.add_option("--ready-fd", words.ready_fd,
                 "a descriptor that gets one line: 'ready', or what went wrong");
  app.add_flag("--foreground", words.foreground, "log to stderr instead of the file 'log' in the directory");
}

// One line to the descriptor that whoever started the daemon reads.
void tell(int descriptor, std::string line) {
  if (descriptor < 0) return;
  line += '\n';
  if (::write(descriptor, line.data(), line.size()) < 0) spdlog::warn("nobody reads the ready descriptor");
  ::close(descriptor);
}

void set_up_log(const std::string& file, bool is_foreground) {
  std::shared_ptr<spdlog::logger> logger;
  try {
    logger = is_foreground ? spdlog::stderr_logger_mt("urdmad")
                           : spdlog::rotating_logger_mt("urdmad", file, kLogBytes, kOldLogs);
  } catch (const spdlog::spdlog_ex& failed) {
    std::fprintf(stderr, "urdmad: cannot write %s: %s\n", file.c_str(), failed.what());
    return;
  }
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
}

// What a library or a failed check prints goes beside the log.
void keep_stderr(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (descriptor < 0 || ::dup2(descriptor, STDERR_FILENO) < 0) spdlog::warn("cannot write {}", file);
  if (descriptor >= 0) ::close(descriptor);
}

int refuse(int ready_fd, const std::string& sentence) {
  std::fprintf(stderr, "urdmad: %s\n", sentence.c_str());
  tell(ready_fd, sentence);
  return EXIT_FAILURE;
}

int run(const DaemonOptions& options) {
  auto directory = NodeDirectory::open(options.directory, options.group);
  if (!directory) return refuse(options.ready_fd, directory.error().message);
  // Only now: the log is the running daemon's.
  set_up_log(directory->file("log"), options.is_foreground);
  auto daemon = Daemon::start(options, std::move(*directory));
  if (!daemon) {
    spdlog::error("{}", daemon.error().message);
    return refuse(options.ready_fd, daemon.error().message);
  }
  spdlog::info("node {} is up in {}, process {}", options.name, (*daemon)->directory().path(), ::getpid());
  tell(options.ready_fd, kReady);
  if (!options.is_foreground) keep_stderr((*daemon)->directory().file("stderr"));
  (*daemon)->run();
  spdlog::info("stopped");
  spdlog::shutdown();
  // The kernel frees the rest. Waiting for a copier thread that a client holds up would keep us here.
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
  clean_environment(argv);
  ::umask(kUmask);
  DaemonWords words;
  CLI::App app("The daemon of a urdma node; people start it with 'urdma up'.", "urdmad");
  add_options(app, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);  // --help
  } catch (const CLI::ParseError& failed) {
    return refuse(words.ready_fd, failed.what());
  }
  const auto options = urdma::control::judge(words);
  if (!options) return refuse(words.ready_fd, options.error().message);
  return run(*options);
}
