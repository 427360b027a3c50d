// The connection manager as programs see it: the channels of /dev/infiniband/rdma_cm, whose commands it
// carries out, and what becomes of their connections. A message that brings no socket for the answer is
// ignored: a program may write what it likes. A client that sends other nonsense loses its channel, and with
// it its IDs, whose peers are told at once.
// Owner: the daemon; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>

#include "datapath/control/event_loop.hpp"
#include "datapath/control/rdma_cm/context.hpp"

namespace urdma::control::rdma_cm {

class Service {
 public:
  // `loop` and `network` outlive it.
  Service(EventLoop& loop, Network& network, const Limits& limits, const Options& options)
      : loop_(loop), context_(network, limits, options) {
    keep_spare();
  }
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // A program has opened the device.
  void add_channel(UniqueFd fd);
  void on_manager_event(std::uint32_t device, const cm::Event& event);
  // Does what is due; when it is to be called next.
  [[nodiscard]] Instant tend(Instant now);

  struct Summary {
    std::size_t channels = 0;
    std::size_t ids = 0;
    std::size_t listeners = 0;
    std::size_t connections = 0;
    std::uint64_t lost_events = 0;
    std::uint64_t ignored_messages = 0;  // that brought no socket for an answer
  };
  [[nodiscard]] Summary summary() const;

 private:
  void on_readable(std::uint64_t key);
  void serve(std::uint64_t key);
  void keep_spare();
  void end(std::uint64_t key);

  EventLoop& loop_;
  Context context_;
  std::uint64_t last_key_ = 0;
  std::uint64_t ignored_messages_ = 0;
  UniqueFd spare_;  // makes room for the answer's socket where the daemon may open no more files
};

}  // namespace urdma::control::rdma_cm
