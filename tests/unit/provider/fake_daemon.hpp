// A daemon of one session, as a test plays it: the sockets, the Welcome, Hello and AttachUpcall, and after
// that one canned answer a request. Its thread ends with close().
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "provider/control/mapping.hpp"
#include "urdma/abi/client.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/abi/pages.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::provider::testing {

class FakeDaemon {
 public:
  explicit FakeDaemon(std::uint32_t version = abi::kVersion) : version_(version) {
    char directory[] = "/tmp/urdma-provider-test-XXXXXX";
    directory_ = ::mkdtemp(directory);
    ::mkdir((directory_ + "/dev").c_str(), 0700);
    device_ = listen("/dev/uverbs0");
    control_ = listen("/control.sock");
    engine_memory_ = UniqueFd(::memfd_create("engines", MFD_CLOEXEC));
    session_memory_ = UniqueFd(::memfd_create("session", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(engine_memory_.get(), sizeof(abi::EnginePage)), 0);
    EXPECT_EQ(::ftruncate(session_memory_.get(), sizeof(abi::SessionPage)), 0);
    EXPECT_EQ(engine_page_.map(engine_memory_.get(), sizeof(abi::EnginePage), Mapping::Access::kReadWrite),
              0);
    engines().magic = abi::kMagic;
    engines().version = abi::kVersion;
    engines().engine_count = 1;
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeDaemon() {
    close();
    thread_.join();
    for (const char* path : {"/dev/uverbs0", "/control.sock"}) ::unlink((directory_ + path).c_str());
    ::rmdir((directory_ + "/dev").c_str());
    ::rmdir(directory_.c_str());
  }

  // As open("/dev/infiniband/uverbs0") does it.
  UniqueFd open_device() {
    UniqueFd identity(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(abi::connect_to(identity.get(), (directory_ + "/dev").c_str(), "uverbs0"), 0);
    return identity;
  }
  // Dies: every connection ends.
  void close() {
    for (const int fd :
         {device_.get(), control_.get(), identity_fd_.load(), request_fd_.load(), upcall_fd_.load()})
      if (fd >= 0) ::shutdown(fd, SHUT_RDWR);
  }
  void send_upcall(const abi::ConvertRange& range) {
    const abi::Header header{static_cast<std::uint32_t>(abi::MessageType::kConvertRange), 0, 1};
    EXPECT_EQ(abi::send_message(upcall_fd_.load(), header, abi::bytes_of(range), {}), 0);
  }
  abi::EnginePage& engines() { return *reinterpret_cast<abi::EnginePage*>(engine_page_.data()); }

  std::atomic<std::uint32_t> answer_errno{0};
  std::atomic<std::uint32_t> requests{0};  // that were answered after the opening

 private:
  UniqueFd listen(const char* name) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s%s", directory_.c_str(), name);
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(socket.get(), 4), 0);
    return socket;
  }

  template <typename Body>
  static void answer(int socket, const abi::Received& request, const Body& body,
                     std::span<const int> fds = {}) {
    abi::send_message(socket, {request.header.type, 0, request.header.sequence}, abi::bytes_of(body), fds);
  }

  void serve() {
    const UniqueFd identity(::accept4(device_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!identity.is_open()) return;
    identity_fd_ = identity.get();
    const abi::Welcome welcome{abi::kMagic, version_, {{1, 2, 3}}, 0, 1};
    abi::send_message(identity.get(), {static_cast<std::uint32_t>(abi::MessageType::kWelcome), 0, 0},
                      abi::bytes_of(welcome), {});
    const UniqueFd request(::accept4(control_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    request_fd_ = request.get();
    if (!request.is_open() || !answer_hello(request.get())) return;
    const UniqueFd upcall(::accept4(control_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    upcall_fd_ = upcall.get();
    abi::Received message;
    if (abi::receive_message(upcall.get(), message) != 0) return;
    answer(upcall.get(), message, abi::AllocPd{});
    while (abi::receive_message(request.get(), message) == 0) answer_request(request.get(), message);
    identity_fd_ = request_fd_ = upcall_fd_ = -1;
  }

  bool answer_hello(int socket) {
    abi::Received message;
    if (abi::receive_message(socket, message) != 0) return false;
    EXPECT_EQ(message.fd_count, 2U);
    message.close_fds();
    abi::Hello hello;
    std::memcpy(&hello, message.body, sizeof(hello));
    EXPECT_EQ(hello.token.bytes[2], 3);
    abi::HelloReply reply{};
    reply.engine_count = 1;
    const UniqueFd eventfd(::eventfd(0, EFD_CLOEXEC));
    const int fds[] = {engine_memory_.get(), session_memory_.get(), eventfd.get()};
    answer(socket, message, reply, fds);
    return true;
  }

  void answer_request(int socket, abi::Received& message) {
    message.close_fds();
    ++requests;
    if (answer_errno == 0) return answer(socket, message, abi::Handle{7, 0});
    const abi::ErrorText text{"for a reason"};
    abi::send_message(socket, {message.header.type, answer_errno, message.header.sequence},
                      abi::bytes_of(text), {});
  }

  const std::uint32_t version_;
  std::string directory_;
  UniqueFd device_;
  UniqueFd control_;
  UniqueFd engine_memory_;
  UniqueFd session_memory_;
  Mapping engine_page_;
  std::atomic<int> identity_fd_{-1};
  std::atomic<int> request_fd_{-1};
  std::atomic<int> upcall_fd_{-1};
  std::thread thread_;
};

}  // namespace urdma::provider::testing
