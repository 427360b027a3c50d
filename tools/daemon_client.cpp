// Asks a running daemon (see daemon_client.hpp). Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/daemon_client.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "urdma/abi/control.hpp"

namespace urdma::tools {
namespace {

constexpr time_t kAnswerSeconds = 5;
constexpr std::uint64_t kMaxDocumentBytes = std::uint64_t{256} << 20;

struct StatusMessage {
  abi::Header header;
  union {
    abi::StatusReply reply;
    abi::ErrorText error;
  };
};

// Connected, with a time limit for the answer; -1 with errno.
int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  path.copy(address.sun_path, path.size());
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const timeval limit{kAnswerSeconds, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

// Returns the document's descriptor, or -1 with errno.
int exchange(int fd, StatusMessage& message) {
  const abi::Header request{static_cast<std::uint32_t>(abi::MessageType::kStatus), 0, 1};
  if (::send(fd, &request, sizeof(request), MSG_NOSIGNAL) < 0) return -1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{&message, sizeof(message)};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
  if (got < 0) return -1;
  const cmsghdr* rights = CMSG_FIRSTHDR(&header);
  int document = -1;
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS)
    std::memcpy(&document, CMSG_DATA(rights), sizeof(int));
  if (document < 0) errno = EPROTO;
  return document;
}

Result<std::string> read_document(int fd, std::uint64_t bytes) {
  if (bytes > kMaxDocumentBytes) return fail(EPROTO, "the daemon's answer is too long");
  std::string text(bytes, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got <= 0) return fail(EPROTO, "the daemon's answer is incomplete");
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace

Result<std::string> ask_status_text(const std::string& directory) {
  const int fd = connect_to(directory + "/" + abi::kControlSocket);
  if (fd < 0) {
    return fail(errno, fmt::format("cannot reach the daemon in {}: {}", directory, std::strerror(errno)));
  }
  StatusMessage message{};
  const int document = exchange(fd, message);
  const int error = errno == EAGAIN ? ETIMEDOUT : errno;
  ::close(fd);
  if (document < 0)
    return fail(error, fmt::format("the daemon in {} does not answer: {}", directory, std::strerror(error)));
  auto text = read_document(document, message.reply.json_bytes);
  ::close(document);
  return text;
}

Result<Json> ask_status(const std::string& directory) {
  auto text = ask_status_text(directory);
  if (!text) return tl::make_unexpected(text.error());
  Json document = Json::parse(*text, nullptr, false);
  if (document.is_discarded()) return fail(EPROTO, "the daemon's answer is not JSON");
  return document;
}

}  // namespace urdma::tools
