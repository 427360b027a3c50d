// A node without a daemon behind it, for tests of the stand-in: the tree of three devices, and listening
// sockets for two of them. urdma0 has GIDs; urdma1 is as the daemon's death leaves it (its socket refuses);
// urdma2 has neither socket nor interface. The connection manager is that of fake_channel.hpp. Lives in the
// process that starts the tests, which has no stand-in.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_channel.hpp"

namespace urdma::test {

class FakeNode {
 public:
  FakeNode();
  ~FakeNode();
  FakeNode(const FakeNode&) = delete;
  FakeNode& operator=(const FakeNode&) = delete;

  [[nodiscard]] const std::string& directory() const { return directory_; }
  // Bytes that clients sent on device connections: there must be none.
  [[nodiscard]] std::size_t bytes_received() const { return bytes_received_; }

 private:
  void serve();
  void accept_client();
  void accept_channel();

  std::string directory_;
  int listener_ = -1;
  int stop_[2] = {-1, -1};
  int cm_listener_ = -1;
  std::vector<int> clients_;
  std::vector<std::unique_ptr<FakeChannel>> channels_;
  std::atomic<std::size_t> bytes_received_ = 0;
  std::thread server_;
};

}  // namespace urdma::test
