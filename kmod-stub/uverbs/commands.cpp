// Commands by write(2), and channels.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "uverbs/commands.hpp"

#include <fcntl.h>

#include "interpose/path_buffer.hpp"
#include "interpose/raw.hpp"

namespace urdma::stub {
namespace {

long create_completion_channel(const char* body, std::size_t out_words) {
  ib_uverbs_create_comp_channel request;
  ib_uverbs_create_comp_channel_resp response{};
  if (out_words * 4 < sizeof(response)) return -ENOSPC;
  std::memcpy(&request, body, sizeof(request));
  void* const where = reinterpret_cast<void*>(static_cast<std::uintptr_t>(request.response));
  if (!is_readable_pointer(where)) return -EFAULT;
  const long channel = make_channel();
  if (channel < 0) return channel;
  response.fd = static_cast<std::uint32_t>(channel);
  std::memcpy(where, &response, sizeof(response));
  return 0;
}

}  // namespace

long make_channel() {
  int ends[2];
  const long made = raw::call(SYS_pipe2, ends, O_CLOEXEC);
  if (made < 0) return made;
  PathBuffer path;
  path.append("/proc/self/fd/").append(static_cast<std::uint32_t>(ends[0]));
  const long channel = raw::open(path.c_str(), O_RDWR);
  raw::close(ends[0]);
  raw::close(ends[1]);
  return channel;
}

long execute_command(const void* bytes, std::size_t size) {
  ib_uverbs_cmd_hdr header;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.command != IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) return -EOPNOTSUPP;
  if (size != sizeof(header) + sizeof(ib_uverbs_create_comp_channel)) return -EINVAL;
  const long result =
      create_completion_channel(static_cast<const char*>(bytes) + sizeof(header), header.out_words);
  return result < 0 ? result : static_cast<long>(size);
}

}  // namespace urdma::stub
