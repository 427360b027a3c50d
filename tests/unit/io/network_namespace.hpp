// Network namespaces for tests: made, entered by the calling thread, and gone when the last descriptor is
// closed. Needs root; tests skip otherwise.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace urdma::test {

// The namespace that the calling thread is in. Closed with the object.
class NetworkNamespace {
 public:
  static NetworkNamespace current() {
    return NetworkNamespace(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  }
  // A new one; the thread is in it afterwards. is_valid() is false without the privilege.
  static NetworkNamespace make() {
    if (unshare(CLONE_NEWNET) != 0) return NetworkNamespace(-1);
    return current();
  }
  NetworkNamespace() = default;
  NetworkNamespace(NetworkNamespace&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  NetworkNamespace& operator=(NetworkNamespace&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~NetworkNamespace() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  [[nodiscard]] bool is_valid() const { return descriptor_ >= 0; }
  void enter() const { ASSERT_EQ(setns(descriptor_, CLONE_NEWNET), 0); }
  // As `ip link set ... netns` takes it.
  [[nodiscard]] std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_); }

 private:
  explicit NetworkNamespace(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

inline void run(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

// Two namespaces, `here` with interface "left" (10.9.0.1/24, fd09::1/64) and `there` with "right"
// (10.9.0.2/24, fd09::2/64), joined by a veth pair. The test starts in `here`.
class VethPair : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    original_ = NetworkNamespace::current();
    there_ = NetworkNamespace::make();
    here_ = NetworkNamespace::make();
    if (!there_.is_valid() || !here_.is_valid()) GTEST_SKIP() << "no network namespace can be made here";
    for (const NetworkNamespace* space : {&there_, &here_}) {
      space->enter();
      // Link-local addresses are there at once, without a second of duplicate address detection.
      run("ip link set lo up && echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad");
    }
    run("ip link add left address 02:00:00:00:09:01 type veth peer name right address 02:00:00:00:09:02 "
        "netns " +
        there_.path());
    set_up("left", 1);
    there_.enter();
    set_up("right", 2);
    here_.enter();
  }
  void TearDown() override {
    if (original_.is_valid()) original_.enter();
  }
  static void set_up(const std::string& name, int host) {
    run(fmt::format("ip addr add 10.9.0.{}/24 dev {}", host, name));
    run(fmt::format("ip addr add fd09::{}/64 dev {} nodad", host, name));
    run(fmt::format("ip link set {} up", name));
  }
  // MTU of both ends.
  void set_mtu(int mtu) {
    run(fmt::format("ip link set left mtu {}", mtu));
    there_.enter();
    run(fmt::format("ip link set right mtu {}", mtu));
    here_.enter();
  }

  NetworkNamespace original_;
  NetworkNamespace here_;
  NetworkNamespace there_;
};

}  // namespace urdma::test
