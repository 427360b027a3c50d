// A node without a daemon behind it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "fake_node.hpp"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "datapath/control/sysfs_tree.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/base/check.hpp"

namespace urdma::test {
namespace {

int listen_at(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  URDMA_CHECK(path.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.c_str(), path.size());
  URDMA_CHECK(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  URDMA_CHECK(::listen(fd, 64) == 0);
  return fd;
}

control::SysfsDevice device(std::uint32_t number, const char* interface) {
  return {.name = "urdma" + std::to_string(number),
          .uverbs = number,
          .node_guid = 0x0200000000000001U + number,
          .system_image_guid = 0x0200000000000001U,
          .firmware = "0.1.0",
          .board_id = "URDMA",
          .hca_type = "urdma",
          .vendor_id = 0x1234,
          .vendor_part_id = 0x5678,
          .interface = interface,
          .gid_table_length = 8};
}

void make_tree(const std::string& directory) {
  const std::array devices = {device(0, "lo"), device(1, "lo"), device(2, "")};
  Result<control::SysfsTree> tree = control::SysfsTree::create(directory, devices);
  URDMA_CHECK(tree.has_value());
  std::array<control::SysfsGid, 2> gids;
  gids[0] = {.index = 0, .gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1}, .interface = "lo"};
  gids[1] = {.index = 5, .gid = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, .interface = ""};
  URDMA_CHECK(tree->update_gids(0, gids).has_value());
  URDMA_CHECK(tree->update_port(0, {true, "10 Gb/sec (1X QDR)"}).has_value());
}

}  // namespace

FakeNode::FakeNode() {
  char name[] = "/tmp/urdma-node-XXXXXX";
  URDMA_CHECK(::mkdtemp(name) != nullptr);
  directory_ = name;
  make_tree(directory_ + "/sysfs");
  URDMA_CHECK(::mkdir((directory_ + "/dev").c_str(), 0755) == 0);
  listener_ = listen_at(directory_ + "/dev/uverbs0");
  ::close(listen_at(directory_ + "/dev/uverbs1"));
  cm_listener_ = listen_at(directory_ + "/dev/rdma_cm");
  URDMA_CHECK(::pipe(stop_) == 0);
  server_ = std::thread([this] { serve(); });
}

FakeNode::~FakeNode() {
  ::close(stop_[1]);
  server_.join();
  for (const int client : clients_) ::close(client);
  channels_.clear();
  ::close(listener_);
  ::close(cm_listener_);
  ::close(stop_[0]);
  std::filesystem::remove_all(directory_);
}

void FakeNode::serve() {
  for (;;) {
    std::vector<pollfd> waiting = {{stop_[0], POLLIN, 0}, {listener_, POLLIN, 0}, {cm_listener_, POLLIN, 0}};
    for (const int client : clients_) waiting.push_back({client, POLLIN, 0});
    for (const auto& channel : channels_) waiting.push_back({channel->descriptor(), POLLIN, 0});
    ::poll(waiting.data(), waiting.size(), -1);
    if (waiting[0].revents != 0) return;
    std::erase_if(channels_, [](const auto& channel) { return !channel->serve(); });
    for (std::size_t i = 3; i < waiting.size(); ++i) {
      const bool is_client = std::find(clients_.begin(), clients_.end(), waiting[i].fd) != clients_.end();
      if (waiting[i].revents == 0 || !is_client) continue;
      char bytes[64];
      const ssize_t size = ::recv(waiting[i].fd, bytes, sizeof(bytes), 0);
      if (size > 0) bytes_received_ += static_cast<std::size_t>(size);
      if (size > 0) continue;
      ::close(waiting[i].fd);
      std::erase(clients_, waiting[i].fd);
    }
    if (waiting[1].revents != 0) accept_client();
    if (waiting[2].revents != 0) accept_channel();
  }
}

void FakeNode::accept_channel() {
  const int channel = ::accept4(cm_listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (channel >= 0) channels_.push_back(std::make_unique<FakeChannel>(channel));
}

void FakeNode::accept_client() {
  const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  const struct {
    abi::Header header;
    abi::Welcome body;
  } welcome{.header = {static_cast<std::uint32_t>(abi::MessageType::kWelcome), 0, 0},
            .body = {abi::kMagic, abi::kVersion, {{1, 2, 3}}, 0, static_cast<std::uint32_t>(::getpid())}};
  // A client that is gone already is noticed by its end-of-file.
  static_cast<void>(::send(client, &welcome, sizeof(welcome), MSG_NOSIGNAL));
  clients_.push_back(client);
}

}  // namespace urdma::test
