// Many connections by IP address, one after another or as a storm. Usage: connections [-p PORT] [--count N]
// [--rate PER-SECOND] [--threads N] [--hold] [HOST]. The client makes each connection, sends its number over
// it, and takes it down; the server compares. Both end with 0 when all have been made, heard and taken down,
// and the client prints how long the slowest took. With --hold the client makes one connection, says "held",
// waits to be told that it is disconnected, and prints when: seconds of CLOCK_MONOTONIC.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <arpa/inet.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "verbs_test.hpp"

using namespace urdma::system_test;

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kResolveMs = 5000;

struct Options {
  std::string host;
  std::string port = "18600";
  std::uint32_t count = 100;
  std::uint32_t rate = 0;  // 0: as fast as it goes
  std::uint32_t threads = 1;
  bool is_held = false;
};

ibv_qp_init_attr wanted_qp() {
  ibv_qp_init_attr wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {1, 1, 1, 1, sizeof(std::uint32_t)};
  return wanted;
}

// ---- The server: one thread, and one CQ for all ----

class Server {
 public:
  explicit Server(const Options& options)
      : count_(options.count), numbers_(options.count), seen_(options.count) {
    channel_ = rdma_create_event_channel();
    if (channel_ == nullptr) fail("rdma_create_event_channel");
    expect(rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP), "rdma_create_id");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoul(options.port)));
    expect(rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)), "rdma_bind_addr");
    expect(rdma_listen(listener_, 1024), "rdma_listen");
  }
  ~Server() {
    rdma_destroy_id(listener_);
    rdma_destroy_event_channel(channel_);
    if (region_ != nullptr) ibv_dereg_mr(region_);
    if (cq_ != nullptr) ibv_destroy_cq(cq_);
    if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void serve() {
    while (over_ < count_) {
      rdma_cm_event* event = nullptr;
      expect(rdma_get_cm_event(channel_, &event), "rdma_get_cm_event");
      const rdma_cm_event_type kind = event->event;
      const int status = event->status;
      rdma_cm_id* const id = event->id;
      rdma_ack_cm_event(event);
      take(kind, status, id);
    }
    if (heard_ != count_) fail("heard " + std::to_string(heard_) + " messages of " + std::to_string(count_));
  }

 private:
  static void expect(int result, const char* what) {
    if (result != 0) fail(what);
  }

  void take(rdma_cm_event_type kind, int status, rdma_cm_id* id) {
    if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) return accept(id);
    if (kind == RDMA_CM_EVENT_DISCONNECTED) return end(id);
    if (kind != RDMA_CM_EVENT_ESTABLISHED && kind != RDMA_CM_EVENT_TIMEWAIT_EXIT)
      fail(std::string(rdma_event_str(kind)) + ", status " + std::to_string(status));
  }

  void accept(rdma_cm_id* id) {
    if (cq_ == nullptr) prepare(id->verbs);
    if (begun_ == count_) fail("more connections than were asked for");
    ibv_qp_init_attr wanted = wanted_qp();
    wanted.send_cq = wanted.recv_cq = cq_;
    expect(rdma_create_qp(id, pd_, &wanted), "rdma_create_qp");
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(&numbers_[begun_]), sizeof(std::uint32_t), region_->lkey};
    ibv_recv_wr request{};
    request.wr_id = begun_++;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    expect(ibv_post_recv(id->qp, &request, &bad), "ibv_post_recv");
    rdma_conn_param parameters{};
    parameters.rnr_retry_count = 7;
    expect(rdma_accept(id, &parameters), "rdma_accept");
  }

  void prepare(ibv_context* context) {
    pd_ = ibv_alloc_pd(context);
    if (pd_ == nullptr) fail("ibv_alloc_pd");
    cq_ = ibv_create_cq(context, static_cast<int>(2 * count_), nullptr, nullptr, 0);
    if (cq_ == nullptr) fail("ibv_create_cq");
    region_ = ibv_reg_mr(pd_, numbers_.data(), numbers_.size() * sizeof(numbers_[0]), IBV_ACCESS_LOCAL_WRITE);
    if (region_ == nullptr) fail("ibv_reg_mr");
  }

  void end(rdma_cm_id* id) {
    hear();
    rdma_disconnect(id);
    rdma_destroy_qp(id);
    expect(rdma_destroy_id(id), "rdma_destroy_id");
    ++over_;
  }

  // Each number once.
  void hear() {
    ibv_wc completion{};
    while (ibv_poll_cq(cq_, 1, &completion) > 0) {
      if (completion.status != IBV_WC_SUCCESS) continue;  // of a connection whose client gave it up
      const std::uint32_t number = numbers_[completion.wr_id];
      if (number >= count_ || seen_[number]) fail("a wrong number: " + std::to_string(number));
      seen_[number] = true;
      ++heard_;
    }
  }

  std::uint32_t count_;
  std::uint32_t begun_ = 0;
  std::uint32_t over_ = 0;
  std::uint32_t heard_ = 0;
  std::vector<std::uint32_t> numbers_;
  std::vector<bool> seen_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
};

// ---- The client: each thread takes the next number ----

void expect_zero_of(int result, const char* what, std::uint32_t number) {
  if (result != 0) fail(std::string(what) + ", connection " + std::to_string(number));
}

void send_number(rdma_cm_id* id, std::uint32_t number) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(&number), sizeof(number), 0};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  expect_zero_of(ibv_post_send(id->qp, &request, &bad), "ibv_post_send", number);
  wait_for_success(id->send_cq);
}

rdma_cm_id* connected(const Options& options, addrinfo* server, std::uint32_t number) {
  rdma_cm_id* id = nullptr;  // without a channel: each call waits for its event
  expect_zero_of(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), "rdma_create_id", number);
  expect_zero_of(rdma_resolve_addr(id, nullptr, server->ai_addr, kResolveMs), "rdma_resolve_addr", number);
  expect_zero_of(rdma_resolve_route(id, kResolveMs), "rdma_resolve_route", number);
  ibv_qp_init_attr wanted = wanted_qp();
  expect_zero_of(rdma_create_qp(id, nullptr, &wanted), "rdma_create_qp", number);
  rdma_conn_param parameters{};
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;
  expect_zero_of(rdma_connect(id, &parameters), ("rdma_connect to " + options.host).c_str(), number);
  return id;
}

void take_down(rdma_cm_id* id, std::uint32_t number) {
  expect_zero_of(rdma_disconnect(id), "rdma_disconnect", number);
  rdma_destroy_qp(id);
  expect_zero_of(rdma_destroy_id(id), "rdma_destroy_id", number);
}

void connect_once(const Options& options, addrinfo* server, std::uint32_t number) {
  rdma_cm_id* const id = connected(options, server, number);
  send_number(id, number);
  take_down(id, number);
}

void hold(const Options& options, addrinfo* server) {
  rdma_cm_id* const id = connected(options, server, 0);
  std::printf("held\n");
  std::fflush(stdout);
  rdma_cm_event* event = nullptr;
  expect_zero_of(rdma_get_cm_event(id->channel, &event), "rdma_get_cm_event", 0);
  const std::chrono::duration<double> now = Clock::now().time_since_epoch();
  if (event->event != RDMA_CM_EVENT_DISCONNECTED) fail(rdma_event_str(event->event));
  rdma_ack_cm_event(event);
  std::printf("told at %.6f\n", now.count());
  take_down(id, 0);
}

class Client {
 public:
  explicit Client(const Options& options) : options_(options) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    if (getaddrinfo(options.host.c_str(), options.port.c_str(), &hints, &server_) != 0) fail("getaddrinfo");
  }
  ~Client() { freeaddrinfo(server_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void run() {
    if (options_.is_held) return hold(options_, server_);
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < options_.threads; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
    if (has_failed_) fail("not all of them");
    std::printf("%u connections in %.2f s, the slowest in %.3f s\n", options_.count, seconds_since(begun_),
                static_cast<double>(slowest_us_.load()) / 1e6);
  }

 private:
  static double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  }

  void work() {
    try {
      while (!has_failed_) {
        const std::uint32_t number = next_++;
        if (number >= options_.count) return;
        if (options_.rate > 0)
          std::this_thread::sleep_until(begun_ +
                                        std::chrono::microseconds(1'000'000) * number / options_.rate);
        const auto then = Clock::now();
        connect_once(options_, server_, number);
        note(static_cast<std::uint64_t>(seconds_since(then) * 1e6));
      }
    } catch (const std::exception& error) {
      has_failed_ = true;
      std::fprintf(stderr, "%s\n", error.what());
    }
  }

  void note(std::uint64_t took_us) {
    std::uint64_t slowest = slowest_us_;
    while (took_us > slowest && !slowest_us_.compare_exchange_weak(slowest, took_us)) {
    }
  }

  const Options& options_;
  addrinfo* server_ = nullptr;
  Clock::time_point begun_ = Clock::now();
  std::atomic<std::uint32_t> next_ = 0;
  std::atomic<std::uint64_t> slowest_us_ = 0;
  std::atomic<bool> has_failed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Many connections by IP address."};
  app.add_option("-p", options.port);
  app.add_option("--count", options.count);
  app.add_option("--rate", options.rate);
  app.add_option("--threads", options.threads);
  app.add_flag("--hold", options.is_held);
  app.add_option("host", options.host);
  CLI11_PARSE(app, argc, argv);
  try {
    if (options.host.empty()) {
      Server(options).serve();
    } else {
      Client(options).run();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
