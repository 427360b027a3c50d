// A session's part in turning private pages into shared ones: which of its regions use which pages. The
// pages themselves are the process's (provider/memory/converted_map.hpp).
//
// One object a session. Regions come and go on the program's threads; ConvertRange comes on the service
// thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "urdma/abi/control.hpp"

namespace urdma::provider {

class RequestChannel;

// A region as it was registered.
struct RegisteredRange {
  std::uint32_t handle = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};

class Conversion {
 public:
  // `requests` carries ConvertBegin and its kin, and outlives the object. `is_wanted` is
  // HelloReply::convert; URDMA_CONVERT=0 in the program's environment says no as well.
  Conversion(RequestChannel& requests, bool is_wanted);
  ~Conversion();
  Conversion(const Conversion&) = delete;
  Conversion& operator=(const Conversion&) = delete;

  // After the daemon has accepted a region. The program's thread that registers.
  void on_registered(const RegisteredRange& range);
  // Traffic has earned the range a mapping. The service thread; there is no reply.
  void on_convert_range(const abi::ConvertRange& range);
  // Before the daemon is told that a region goes. The program's thread that deregisters.
  void before_deregister(std::uint32_t handle);

 private:
  struct Pages {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
  };

  RequestChannel& requests_;
  bool is_wanted_;
  std::mutex mutex_;
  std::map<std::uint32_t, Pages> regions_;  // those with whole pages, by handle; guarded by mutex_
};

}  // namespace urdma::provider
