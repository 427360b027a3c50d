// A context's session with the daemon: its connections, the pages that both share, its async pipe.
//
// Made when the program opens the device, destroyed when it closes it. Any thread may use it in between;
// what is fixed after open() is read without a lock.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "provider/control/conversion.hpp"
#include "provider/control/liveness.hpp"
#include "provider/control/mapping.hpp"
#include "provider/control/request_channel.hpp"
#include "provider/queue/doorbell.hpp"
#include "urdma/abi/control.hpp"
#include "urdma/abi/pages.hpp"
#include "urdma/base/result.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::provider {

class Session {
 public:
  // `identity` is what open("/dev/infiniband/uverbsN") gave; it stays the caller's, and keeps the
  // session alive in the daemon.
  [[nodiscard]] static Result<std::unique_ptr<Session>> open(int identity);
  ~Session();
  // Once the context is complete: the service thread watches the session from now on. `on_gone` is called
  // once, by any thread, when the daemon is gone.
  void start(std::function<void()> on_gone);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] RequestChannel& requests() { return requests_; }
  [[nodiscard]] Liveness& liveness() { return liveness_; }
  [[nodiscard]] const Liveness& liveness() const { return liveness_; }
  [[nodiscard]] Conversion& conversion() { return *conversion_; }
  [[nodiscard]] const abi::DeviceInfo& device() const { return hello_.device; }
  [[nodiscard]] const DoorbellPanel& doorbells() const { return panel_; }
  // Whether empty polls give way to other threads.
  [[nodiscard]] bool yields_when_idle() const { return yields_when_idle_; }
  // The program's end of the async events: until take_async_fd() the session's.
  [[nodiscard]] int take_async_fd() { return async_.release(); }
  // Whether this process got the session by fork: then it belongs to the parent, and here only what is
  // local can be taken apart.
  [[nodiscard]] bool is_inherited() const { return inherited_; }

  // ---- Service thread and fork handlers ----
  [[nodiscard]] int upcall_fd() const { return upcall_.get(); }
  void on_upcall_readable();
  void become_inherited();

 private:
  Session() : requests_(liveness_) {}
  Status connect(const abi::Welcome& welcome, const char* directory);
  Status map_pages(std::vector<UniqueFd> fds);

  Liveness liveness_;
  RequestChannel requests_;
  std::unique_ptr<Conversion> conversion_;
  UniqueFd upcall_;
  UniqueFd async_;
  abi::HelloReply hello_{};
  Mapping engine_page_;
  Mapping session_page_;
  std::array<UniqueFd, abi::kMaxEngines> eventfds_;
  DoorbellPanel panel_;
  bool yields_when_idle_ = false;
  bool inherited_ = false;
};

}  // namespace urdma::provider
