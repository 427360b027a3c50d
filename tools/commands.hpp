// The commands of `urdma`, one a file. Each returns the exit status, and says in one sentence on stderr what
// went wrong. Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <string>
#include <vector>

namespace urdma::tools {

inline constexpr const char* kDefaultNode = "default";

struct UpOptions {
  std::string name = kDefaultNode;
  std::vector<std::string> ports;
  std::string idle;
  std::string cores;
  std::string engines;
  std::string group;
  bool force_wire = false;
  bool no_convert = false;
  bool no_af_ib = false;
};

int up(const UpOptions& options);
int down(const std::string& name);
// Does not return when the program starts.
int run(const std::string& name, const std::vector<std::string>& command);
int status(const std::string& name, bool as_json);
int doctor(const std::string& name);

// Prints "urdma: SENTENCE" on stderr and returns the exit status of a failure.
int complain(const std::string& sentence);

}  // namespace urdma::tools
