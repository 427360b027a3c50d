// The guard against files of clients that shrink under the daemon. Each test is a process of its own, since
// the guard is one a process.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/bus_error.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>

namespace urdma::memory {
namespace {

template <typename Body>
int status_of_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

volatile std::byte* map_cut_file(std::size_t bytes) {
  const int file = ::memfd_create("cut", MFD_CLOEXEC);
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  auto* data = static_cast<std::byte*>(mapped);
  data[0] = data[4096] = std::byte{1};
  if (::ftruncate(file, 4096) != 0) return nullptr;
  return data;
}

TEST(BusErrorGuard, Install_ReplacesThePage) {
  const int status = status_of_child([] {
    if (!install_bus_error_guard()) return 1;
    volatile std::byte* data = map_cut_file(8192);
    data[4096 + 17] = std::byte{5};
    if (data[4096 + 17] != std::byte{5} || data[4096] != std::byte{0}) return 2;
    if (data[0] != std::byte{1}) return 3;
    return bus_errors() == 1 ? 0 : 4;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A fault that is no such thing ends the process when it comes again, as it does when an access caused it.
TEST(BusErrorGuard, Install_OtherCausesAreFatal) {
  const int status = status_of_child([] {
    if (!install_bus_error_guard()) return 1;
    ::raise(SIGBUS);
    ::raise(SIGBUS);
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(BusErrorGuard, BlockSignals_LetsTheMendedOneThrough) {
  const int status = status_of_child([] {
    block_signals_of_thread();
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGBUS) == 0 ? 0 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace urdma::memory
