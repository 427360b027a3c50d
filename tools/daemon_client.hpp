// Asks a running daemon for its status document. Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "urdma/base/result.hpp"

namespace urdma::tools {

using Json = nlohmann::ordered_json;

// The document as the daemon of the node in `directory` wrote it. ETIMEDOUT when it does not answer.
[[nodiscard]] Result<std::string> ask_status_text(const std::string& directory);
[[nodiscard]] Result<Json> ask_status(const std::string& directory);

}  // namespace urdma::tools
