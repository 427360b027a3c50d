// The daemon: makes everything in order, and runs the control thread's loop until it is told to stop.
// Main thread, which is the control thread, and holds EnginePage::alive for life.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "datapath/control/addressing.hpp"
#include "datapath/control/device.hpp"
#include "datapath/control/event_loop.hpp"
#include "datapath/control/netlink.hpp"
#include "datapath/control/node.hpp"
#include "datapath/control/node_directory.hpp"
#include "datapath/control/options.hpp"
#include "datapath/control/rdma_cm/node_network.hpp"
#include "datapath/control/rdma_cm/service.hpp"
#include "datapath/control/server.hpp"
#include "datapath/io/eal.hpp"
#include "datapath/io/frame_pool.hpp"

namespace urdma::control {

class Daemon {
 public:
  // Everything up to the open sockets. Error messages are for the person who typed `urdma up`.
  [[nodiscard]] static Result<std::unique_ptr<Daemon>> start(const DaemonOptions& options,
                                                             NodeDirectory directory);
  // Returns after SIGTERM or SIGINT, in good order: clients see that the daemon is gone, and the engine has
  // ended. What is left is for the process's end.
  void run();

  [[nodiscard]] const NodeDirectory& directory() const { return directory_; }

 private:
  Daemon(const DaemonOptions& options, NodeDirectory directory)
      : options_(options), directory_(std::move(directory)) {}
  [[nodiscard]] Status open_ports();
  [[nodiscard]] Status make_page();
  [[nodiscard]] Status start_engine();
  [[nodiscard]] Status make_devices();
  [[nodiscard]] Status watch_descriptors();
  void make_connection_manager();
  [[nodiscard]] Status open_sockets();
  void take_reports();
  void take_report(const engine::Report& report);
  void follow_interfaces();
  void follow(const DeviceChange& change);
  void tell_engine(const Device& device);
  void tell_link(const Device& device);
  [[nodiscard]] bool open_again(Device& device);
  void connect_again(Device& device);
  void take_heard();
  void send_waiting(const Device& device);
  [[nodiscard]] Instant tend_neighbours(Instant now);
  [[nodiscard]] Instant tend_connection_manager(Instant now);
  [[nodiscard]] Instant tend_timers();
  [[nodiscard]] abi::EnginePage& page() const;

  DaemonOptions options_;
  Limits limits_;
  NodeDirectory directory_;
  std::unique_ptr<io::Eal> eal_;
  std::optional<io::FramePool> frames_;
  std::vector<std::unique_ptr<io::Port>> ports_;
  memory::SharedMemory page_;
  UniqueFd reports_;
  UniqueFd signals_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Netlink> netlink_;
  std::unique_ptr<DeviceSet> devices_;
  std::unique_ptr<Addressing> addressing_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<rdma_cm::NodeNetwork> cm_network_;
  std::unique_ptr<rdma_cm::Service> cm_service_;
  Instant counters_due_ = Instant::never();
  Instant links_due_;    // of ports that the kernel does not watch
  Instant restart_due_;  // of devices that wait for their peer
  Instant renewal_due_;  // of their paths
  bool is_stopping_ = false;
};

}  // namespace urdma::control
