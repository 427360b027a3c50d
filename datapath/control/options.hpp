// The command line of urdmad. Main thread, before anything else runs.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datapath/engine/engine.hpp"
#include "datapath/io/port_spec.hpp"
#include "urdma/base/result.hpp"

namespace urdma::control {

struct DaemonOptions {
  std::string directory;
  std::string name = "default";
  std::vector<io::PortSpec> ports;
  engine::IdlePolicy idle = engine::IdlePolicy::kAdaptive;
  std::string idle_text = "adaptive";
  std::uint32_t engines = 1;
  std::vector<int> cores;  // one for each engine to be pinned to; or none
  bool force_wire = false;
  bool converts = true;
  bool supports_af_ib = true;
  std::optional<std::string> group;
  int ready_fd = -1;
  bool is_foreground = false;
};

// What CLI11 read of a word list, before it is judged.
struct DaemonWords {
  std::string directory;
  std::string name = "default";
  std::vector<std::string> ports;
  std::string idle = "adaptive";
  std::string cores;
  std::uint32_t engines = 0;  // 0: one for each of the cores, or one
  std::string group;
  bool force_wire = false;
  bool no_convert = false;
  bool no_af_ib = false;
  int ready_fd = -1;
  bool foreground = false;
};

// EINVAL or ENOTSUP in words.
[[nodiscard]] Result<DaemonOptions> judge(const DaemonWords& words);
// "3", "0,2" or "0-3": each core once, ascending.
[[nodiscard]] Result<std::vector<int>> parse_cores(const std::string& text);

}  // namespace urdma::control
