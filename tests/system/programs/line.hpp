// A TCP connection between the two ends of a verbs program: addresses first, then one byte whenever one waits
// for the other. Each thread has its own. Failures throw, as in verbs_test.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "verbs_test.hpp"

namespace urdma::system_test {

// A TCP connection on which both ends wait for one another.
class Line {
 public:
  // Without a host it is the server, and waits for one client.
  Line(const std::string& host, const std::string& port)
      : socket_(host.empty() ? accept_one(port) : connect_to(host, port)) {}
  ~Line() { close(socket_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  template <typename T>
  T exchange(const T& mine) const {
    T theirs{};
    if (send(socket_, &mine, sizeof(mine), MSG_NOSIGNAL) != sizeof(mine)) fail("the other end is gone");
    if (recv(socket_, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs)) fail("the other end is gone");
    return theirs;
  }
  // Both ends have come here.
  void meet() const { exchange('m'); }

 private:
  static int accept_one(const std::string& port) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    expect_zero(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), "bind");
    expect_zero(listen(listener, 1), "listen");
    const int accepted = accept(listener, nullptr, nullptr);
    close(listener);
    return accepted;
  }

  static int connect_to(const std::string& host, const std::string& port) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    expect_zero(getaddrinfo(host.c_str(), port.c_str(), &hints, &found), "getaddrinfo");
    const int connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int result = connect(connected, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    expect_zero(result, "connect");
    return connected;
  }

  int socket_;
};

}  // namespace urdma::system_test
