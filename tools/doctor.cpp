// `urdma doctor`: looks at what the machine allows, and says of each thing what it means and what to do.
// Changes nothing. Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tools/commands.hpp"
#include "tools/daemon_client.hpp"
#include "tools/node_location.hpp"

namespace urdma::tools {
namespace {

constexpr int kNetlinkRdma = 20;  // of linux/netlink.h
constexpr std::uint64_t kSmallMemlock = 64 * 1024;

// How much a finding matters.
enum class Grade : std::uint8_t { kGood, kHint, kProblem };

void report(Grade grade, const char* what, const std::string& sentence) {
  const char* mark = grade == Grade::kGood ? "ok" : grade == Grade::kHint ? "hint" : "PROBLEM";
  fmt::print("{:<8} {:<16} {}\n", mark, what, sentence);
}

long read_number(const std::string& path, long otherwise) {
  std::ifstream file(path);
  long value = 0;
  return file >> value ? value : otherwise;
}

void check_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  if (cores >= 4) {
    report(Grade::kGood, "cores",
           fmt::format("{} cores: 'urdma up --idle poll --cores N' may give one to the engine", cores));
  } else {
    report(Grade::kGood, "cores",
           fmt::format("{} cores: leave --idle at adaptive, programs need them all", cores));
  }
}

// In a child, so that this process keeps its policy.
bool allows_realtime() {
  const pid_t child = ::fork();
  if (child == 0) {
    sched_param parameter{};
    parameter.sched_priority = 1;
    ::_exit(::sched_setscheduler(0, SCHED_FIFO, &parameter) == 0 ? 0 : 1);
  }
  int ended = 1;
  return child > 0 && ::waitpid(child, &ended, 0) == child && ended == 0;
}

void check_realtime() {
  if (allows_realtime()) {
    report(Grade::kGood, "SCHED_FIFO", "allowed: the engine runs ahead of programs that spin");
  } else {
    report(Grade::kHint, "SCHED_FIFO",
           "not allowed: latency has outliers when all cores are busy; run urdmad as root, or allow it with "
           "'rtprio 1' in "
           "/etc/security/limits.conf");
  }
}

void check_huge_pages() {
  const long free = read_number("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", 0);
  if (free > 0) {
    report(Grade::kGood, "huge pages", fmt::format("{} of 2 MiB are free", free));
  } else {
    report(Grade::kGood, "huge pages",
           "none are free, and none are needed; a hardware port gains from some "
           "('sysctl vm.nr_hugepages=64')");
  }
}

void check_userfaultfd() {
  long fd = ::syscall(SYS_userfaultfd, O_CLOEXEC);
  const bool is_full = fd >= 0;
  if (!is_full) fd = ::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  if (fd >= 0) ::close(static_cast<int>(fd));
  const bool has_device = ::access("/dev/userfaultfd", R_OK | W_OK) == 0;
  if (is_full || has_device) {
    report(Grade::kGood, "userfaultfd",
           "allowed: memory of programs is mapped in the daemon, for full speed");
  } else if (fd >= 0) {
    report(Grade::kGood, "userfaultfd",
           "allowed for user mode: memory is mapped; 'sysctl vm.unprivileged_userfaultfd=1' also spares "
           "system calls that "
           "write to memory just then an error");
  } else {
    report(Grade::kHint, "userfaultfd",
           "not allowed: private memory is copied by system calls, which is slower; outside of a container's "
           "default seccomp "
           "profile it works");
  }
}

void check_ptrace() {
  // The client opens its own /proc/self/mem, and no ptrace rule applies to that.
  const int fd = ::open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
  const long scope = read_number("/proc/sys/kernel/yama/ptrace_scope", 0);
  if (fd >= 0) {
    report(Grade::kGood, "/proc/self/mem",
           fmt::format("can be opened, so Yama's ptrace_scope ({}) does not matter", scope));
  } else {
    report(Grade::kProblem, "/proc/self/mem",
           "cannot be opened: programs cannot use the device; mount /proc, and start them "
           "as non-setuid programs");
  }
}

void check_memlock() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool is_small = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= kSmallMemlock;
  report(Grade::kGood, "memlock",
         is_small ? "the limit is small, and does not matter: urdma locks no memory"
                  : "the limit does not matter: urdma locks no memory");
}

void check_kernel_rdma() {
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, kNetlinkRdma);
  if (fd >= 0) ::close(fd);
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  const bool has_devices = !none && devices != std::filesystem::directory_iterator();
  if (has_devices) {
    report(Grade::kGood, "kernel RDMA",
           "this machine has RDMA devices of its own; 'urdma run' shows them beside urdma's");
  } else {
    report(Grade::kGood, "kernel RDMA",
           fd >= 0 ? "the kernel has RDMA and no device; urdma needs neither"
                   : "the kernel has none, and urdma needs none");
  }
}

void check_ports() {
  const int raw = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (raw >= 0) ::close(raw);
  report(Grade::kGood, "loopback port", "works always: programs on this machine reach one another");
  if (raw >= 0) {
    report(Grade::kGood, "af_packet port",
           "allowed: 'urdma up --port af_packet:INTERFACE' reaches other machines");
  } else {
    report(Grade::kHint, "af_packet port",
           "not allowed: to reach other machines, start the node as root, or give urdmad "
           "CAP_NET_RAW and CAP_NET_ADMIN");
  }
}

bool check_parts() {
  const bool has_stub = !find_part({"../lib/liburdma-kstub.so", "../kmod-stub/liburdma-kstub.so"}).empty();
  const bool has_provider =
      !find_part({"../lib/liburdma-rdmav34.so", "../provider/liburdma-rdmav34.so"}).empty();
  const bool has_daemon = !find_part({"../sbin/urdmad", "../datapath/urdmad", "urdmad"}).empty();
  if (has_stub && has_provider && has_daemon) {
    report(Grade::kGood, "installation", fmt::format("complete, around {}", own_directory()));
    return true;
  }
  report(Grade::kProblem, "installation",
         fmt::format("{} is missing beside {}; run scripts/build",
                     !has_daemon     ? "sbin/urdmad"
                     : !has_provider ? "lib/liburdma-rdmav34.so"
                                     : "lib/liburdma-kstub.so",
                     own_directory()));
  return false;
}

bool check_daemon(const std::string& name) {
  const auto node = find_node(name);
  if (!node) {
    report(Grade::kHint, "node", node.error().message);
    return true;
  }
  const auto document = ask_status(node->directory);
  if (!document) {
    report(Grade::kProblem, "node", document.error().message);
    return false;
  }
  report(Grade::kGood, "node",
         fmt::format("'{}' runs as process {} in {}", name, node->pid, node->directory));
  return true;
}

}  // namespace

int doctor(const std::string& name) {
  bool is_well = check_parts();
  check_cores();
  check_realtime();
  check_huge_pages();
  check_userfaultfd();
  check_ptrace();
  check_memlock();
  check_kernel_rdma();
  check_ports();
  is_well = check_daemon(name) && is_well;
  return is_well ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace urdma::tools
