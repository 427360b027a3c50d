// The daemon's end of a channel of the connection manager, which shows what has arrived:
//  CREATE_ID    the answer is the low half of the uid, as an ID
//  DESTROY_ID   ENOENT, but for ID 99, with which the events go, though not their signs
//  return       so many signs have come back: their count is the status of the next event
//  LISTEN       signs as many events as the backlog, of which there are as many as the ID
//  BIND, ACCEPT succeed
//  GET_EVENT    an event with the bytes of room that there is as its status, or EAGAIN where there is none
//  SET_OPTION   the error is the first byte of the value
//  offer, MIGRATE_ID  the ticket is 77, and what is told is the ticket that came
//  62           EPROTO: it is of another version
//  DISCONNECT   the daemon dies: the channel is closed without an answer
// One thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <span>

namespace urdma::test {

class FakeChannel {
 public:
  explicit FakeChannel(int fd) : fd_(fd) {}
  ~FakeChannel();
  FakeChannel(const FakeChannel&) = delete;
  FakeChannel& operator=(const FakeChannel&) = delete;

  [[nodiscard]] int descriptor() const { return fd_; }
  // Answers what has come. False: the channel is at its end.
  [[nodiscard]] bool serve();

 private:
  [[nodiscard]] bool carry_out(std::span<const char> message, int answer);
  void sign(std::uint32_t count);

  int fd_;
  std::uint32_t events_ = 0;
  std::uint32_t returned_ = 0;
};

}  // namespace urdma::test
