// The pipes by which a session's completion queues tell of their events: each is one descriptor of the
// daemon's, however many queues have it. Owner: the session's objects; control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "datapath/control/xrc_domain.hpp"
#include "datapath/engine/event_channel.hpp"

namespace urdma::control {

class EventPipes {
 public:
  // Null when no queue has this pipe.
  [[nodiscard]] std::shared_ptr<engine::EventPipe> find(const FileIdentity& identity) const {
    const auto found = pipes_.find(identity);
    return found != pipes_.end() ? found->second.lock() : nullptr;
  }
  // Those that no queue has any more are forgotten.
  void add(const FileIdentity& identity, const std::shared_ptr<engine::EventPipe>& pipe) {
    std::erase_if(pipes_, [](const auto& entry) { return entry.second.expired(); });
    pipes_.insert_or_assign(identity, pipe);
  }
  // That queues have.
  [[nodiscard]] std::uint32_t size() const {
    std::uint32_t count = 0;
    for (const auto& [identity, pipe] : pipes_) count += pipe.expired() ? 0 : 1;
    return count;
  }

 private:
  std::map<FileIdentity, std::weak_ptr<engine::EventPipe>> pipes_;
};

}  // namespace urdma::control
