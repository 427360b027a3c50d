// What a dead memif server has left: see stale_socket.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/io/stale_socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace urdma::io {
namespace {

// The value of `key=` among arguments that commas part; empty where there is none.
std::string value_of(std::string_view arguments, std::string_view key) {
  while (!arguments.empty()) {
    const std::string_view part = arguments.substr(0, arguments.find(','));
    if (part.starts_with(key)) return std::string(part.substr(key.size()));
    arguments.remove_prefix(part.size() == arguments.size() ? part.size() : part.size() + 1);
  }
  return "";
}

bool is_deserted(const std::string& path) {
  struct stat status {};
  sockaddr_un address{};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  if (path.size() >= sizeof address.sun_path) return false;
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return false;
  const bool is_refused =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  ::close(socket);
  return is_refused;
}

}  // namespace

void remove_stale_memif_socket(const std::string& arguments) {
  const std::string path = value_of(arguments, "socket=");
  const bool listens = value_of(arguments, "role=") == "server";
  if (!listens || path.empty() || value_of(arguments, "socket-abstract=") != "no") return;
  if (is_deserted(path)) ::unlink(path.c_str());
}

}  // namespace urdma::io
