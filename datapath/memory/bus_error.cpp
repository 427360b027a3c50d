// The SIGBUS guard.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/bus_error.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace urdma::memory {

namespace {

constexpr std::uintptr_t kPageBytes = 4096;
constexpr std::uintptr_t kHugePageBytes = std::uintptr_t{2} << 20;

std::atomic<std::uint64_t> replaced{0};

bool replace(std::uintptr_t address, std::uintptr_t bytes) {
  auto* page = reinterpret_cast<void*>(address & ~(bytes - 1));  // NOLINT: the faulting address
  return ::mmap(page, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
         MAP_FAILED;
}

// Async-signal-safe: system calls and a lock-free counter only.
void on_bus_error(int, siginfo_t* info, void*) {
  const int errno_before = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  // A mapping of huge pages cannot be replaced in part.
  const bool is_mended =
      info->si_code == BUS_ADRERR && (replace(address, kPageBytes) || replace(address, kHugePageBytes));
  if (!is_mended) {
    ::signal(SIGBUS, SIG_DFL);  // the access is made again, and ends the process with a core
    return;
  }
  replaced.fetch_add(1, std::memory_order_relaxed);
  errno = errno_before;
}

}  // namespace

Status install_bus_error_guard() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigfillset(&action.sa_mask);
  if (::sigaction(SIGBUS, &action, nullptr) != 0) return fail_errno(errno, "cannot guard against SIGBUS");
  return {};
}

void block_signals_of_thread() {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

std::uint64_t bus_errors() { return replaced.load(std::memory_order_relaxed); }

}  // namespace urdma::memory
