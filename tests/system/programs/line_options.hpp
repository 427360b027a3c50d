// The command line that both ends of a verbs program have: where they meet, and which GID is theirs.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace urdma::system_test {

struct LineOptions {
  std::string host;  // empty: the server
  std::string port = "18600";
  int gid = 0;

  void add_to(CLI::App& app) {
    app.add_option("host", host);
    app.add_option("-p", port);
    app.add_option("--gid", gid);
  }
};

}  // namespace urdma::system_test
