// Where nodes and the parts of this installation are. Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "urdma/base/result.hpp"

namespace urdma::tools {

// $URDMA_DIR, else /run/urdma for root, else $XDG_RUNTIME_DIR/urdma, else /tmp/urdma-UID.
[[nodiscard]] std::string state_directory();
// Makes it if it is not there. EPERM when it is another user's, or open to others where it must not be.
[[nodiscard]] Status prepare_state_directory(const std::string& directory);

// Node names are file names: letters, digits, and any of "._-" but not first.
[[nodiscard]] Status check_name(const std::string& name);

struct RunningNode {
  std::string directory;  // absolute, without symbolic links
  pid_t pid = 0;
};
// The node of this name that runs in `state`; nothing when none does.
[[nodiscard]] std::optional<RunningNode> find_in(const std::string& state, const std::string& name);
// The node that this user would use: the own one, else root's if it may be used. ESRCH in words.
[[nodiscard]] Result<RunningNode> find_node(const std::string& name);

// Whether the process has been killed, or has ended, and only its remains are not cleared away yet: its locks
// last until they are.
[[nodiscard]] bool is_ending(pid_t pid);

// Where this program is: the directory that holds its executable file.
[[nodiscard]] std::string own_directory();
// The first of the paths, relative to own_directory(), that exists; absolute. "" when none does.
[[nodiscard]] std::string find_part(std::initializer_list<const char*> relative_paths);

}  // namespace urdma::tools
