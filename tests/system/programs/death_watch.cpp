// What a client sees when its daemon dies. Usage: death_watch polling|sleeping|busy. Prints `ready` once its
// queue pairs are connected, waits for the end, and then for each thing that must follow within a second, and
// prints it: flushed completions, the device-fatal event, memory that still holds what it held. Exit status 0
// if all came.
//   polling   polls a receive queue on which nothing arrives
//   sleeping  sleeps in poll() on the completion channel
//   busy      keeps the send queue full
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <poll.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include "verbs_test.hpp"

using namespace urdma::system_test;

namespace {

constexpr int kReceives = 10;
constexpr std::size_t kSize = std::size_t{1} << 20;
constexpr int kLimitMs = 30'000;

// Flushed, or that the queue pair is no more: both end a program that polls.
void expect_flush(const ibv_wc& completion) {
  if (completion.status != IBV_WC_WR_FLUSH_ERR) {
    fail(std::string("a completion with ") + ibv_wc_status_str(completion.status) + " and not flushed");
  }
}

void wait_polling(const Link& link) {
  for (int i = 0; i < kReceives; ++i) expect_flush(wait_for(link.b.receive_cq));
}

void wait_sleeping(const Link& link) {
  expect_zero(ibv_req_notify_cq(link.b.receive_cq, 0), "ibv_req_notify_cq");
  pollfd waiting{link.b.channel->fd, POLLIN, 0};
  if (poll(&waiting, 1, kLimitMs) != 1) fail("nothing wakes the channel");
  wait_polling(link);
}

void wait_busy(const Link& link, const Region& source, const Region& target) {
  ibv_sge piece = source.sge(0, kSize);
  int outstanding = 0;
  while (true) {
    while (outstanding < 64) {
      auto request =
          rdma_request(IBV_WR_RDMA_WRITE, 1, {&piece, 1}, target.address(), target.registration.rkey());
      link.a.post_send(request);
      ++outstanding;
    }
    ibv_wc completion = wait_for(link.a.send_cq);
    --outstanding;
    if (completion.status == IBV_WC_SUCCESS) continue;
    expect_flush(completion);
    while (outstanding-- > 0) expect_flush(wait_for(link.a.send_cq));
    return;
  }
}

void expect_device_fatal(const Device& device) {
  if (const ibv_event_type event = wait_for_async_event(device); event != IBV_EVENT_DEVICE_FATAL) {
    fail(std::string("the event ") + ibv_event_type_str(event));
  }
}

void watch(const std::string& mode) {
  Device device;
  Link link(device, {.events = mode == "sleeping"});
  Region source(device, kSize);
  Region target(device, kSize);
  fill(source.memory.bytes(), 3);
  for (int i = 0; i < kReceives; ++i) link.b.post_receive(1, target.sge(0, 64));
  std::puts("ready");
  std::fflush(stdout);
  if (mode == "polling") wait_polling(link);
  if (mode == "sleeping") wait_sleeping(link);
  if (mode == "busy") wait_busy(link, source, target);
  std::puts("flushed");
  std::fflush(stdout);
  expect_device_fatal(device);
  std::puts("device fatal");
  if (first_difference(source.memory.bytes(), 3) != -1) fail("memory has lost what it held");
  fill(target.memory.bytes(), 4);
  if (first_difference(target.memory.bytes(), 4) != -1) fail("memory cannot be written");
  // What is posted now is flushed, too, and destruction works.
  link.b.post_receive(7, target.sge(0, 64));
  expect_flush(wait_for(link.b.receive_cq));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: death_watch polling|sleeping|busy\n", stderr);
    return 2;
  }
  try {
    watch(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "death_watch: %s\n", error.what());
    return 1;
  }
  std::puts("done");
  return 0;
}
