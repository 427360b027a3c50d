// Starting DPDK's environment: see eal.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/eal.hpp"

#include <fmt/format.h>
#include <rte_config.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

namespace urdma::io {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kMegabyte = std::size_t{1} << 20;
// What DPDK itself and its drivers take besides the pools.
constexpr std::size_t kOwnBytes = 48 * kMegabyte;
constexpr std::size_t kMaxMessageBytes = 512;

// Keeps the last line of the log. DPDK's own threads write to it, too.
class LogSink {
 public:
  void write(std::string_view text) {
    const std::lock_guard lock(mutex_);
    while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    if (const auto line = text.rfind('\n'); line != std::string_view::npos) text.remove_prefix(line + 1);
    if (!text.empty()) last_.assign(text.substr(0, kMaxMessageBytes));
  }
  [[nodiscard]] std::string last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  std::mutex mutex_;
  std::string last_;
};

LogSink& log_sink() {
  static LogSink sink;
  return sink;
}

ssize_t write_to_sink(void* is_verbose, const char* text, std::size_t bytes) {
  log_sink().write({text, bytes});
  if (is_verbose != nullptr) std::fwrite(text, 1, bytes, stderr);
  return static_cast<ssize_t>(bytes);
}

// The stream lives as long as DPDK, which is as long as the process.
void redirect_log(bool is_verbose) {
  static int verbose_mark = 0;
  const cookie_io_functions_t functions = {nullptr, write_to_sink, nullptr, nullptr};
  FILE* stream = fopencookie(is_verbose ? &verbose_mark : nullptr, "w", functions);
  if (stream == nullptr) return;
  setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  rte_openlog_stream(stream);
}

// Whether this process can have so many bytes of huge pages now. DPDK cannot be started a second time
// after it failed for want of them, so the kernel is asked first.
bool has_huge_pages(std::size_t bytes) {
  const std::size_t whole_pages = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  constexpr int kSizeFlag = 21 << MAP_HUGE_SHIFT;
  void* pages = mmap(nullptr, whole_pages, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | kSizeFlag, -1, 0);
  if (pages == MAP_FAILED) return false;
  munmap(pages, whole_pages);
  return true;
}

// DPDK pins the threads it knows to the CPUs named for them. One lcore that may run on all the CPUs that
// this process may use leaves placing threads to the engines.
std::string lcores_argument() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_SET(0, &allowed);
  std::string cpus;
  for (int cpu = 0; cpu < RTE_MAX_LCORE && cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu);
  }
  return fmt::format("0@({})", cpus);
}

std::vector<std::string> eal_arguments(const EalConfig& config, bool in_huge_pages) {
  const std::size_t megabytes = (config.memory_bytes + kOwnBytes + kMegabyte - 1) / kMegabyte;
  std::vector<std::string> arguments = {"urdmad",
                                        "--lcores",
                                        lcores_argument(),
                                        "--file-prefix",
                                        fmt::format("urdma-{}", getpid()),
                                        "--no-telemetry",
                                        "-m",
                                        std::to_string(megabytes)};
  if (in_huge_pages) {
    arguments.emplace_back("--in-memory");
  } else {
    arguments.insert(arguments.end(), {"--no-huge", "--no-shconf"});
  }
  // Without hardware nothing needs physical addresses, which an ordinary user cannot read.
  if (!config.use_pci) arguments.insert(arguments.end(), {"--no-pci", "--iova-mode=va"});
  return arguments;
}

}  // namespace

std::string last_eal_message() { return log_sink().last(); }

Result<std::unique_ptr<Eal>> Eal::start(const EalConfig& config) {
  static std::atomic<bool> was_started{false};
  if (was_started) return fail(EALREADY, "DPDK was started in this process before, and cannot be again");
  if (access(config.runtime_directory.c_str(), W_OK | X_OK) != 0) {
    return fail_errno(errno,
                      fmt::format("DPDK's run-time directory '{}' is not usable", config.runtime_directory));
  }
  was_started = true;
  setenv("RUNTIME_DIRECTORY", config.runtime_directory.c_str(), 1);
  redirect_log(config.is_verbose);
  const bool in_huge_pages = has_huge_pages(config.memory_bytes + kOwnBytes);
  std::vector<std::string> arguments = eal_arguments(config, in_huge_pages);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  if (rte_eal_init(static_cast<int>(pointers.size()), pointers.data()) < 0) {
    return fail(rte_errno != 0 ? rte_errno : EIO, fmt::format("DPDK did not start: {}", last_eal_message()));
  }
  return std::unique_ptr<Eal>(new Eal(in_huge_pages));
}

Eal::~Eal() { rte_eal_cleanup(); }

}  // namespace urdma::io
