// What becomes of a channel whose daemon is gone: as with a device that is taken out, each ID on a device
// gets RDMA_CM_EVENT_DEVICE_REMOVAL, may still be destroyed, and all else is ENODEV; then GET_EVENT is EIO.
//
// What has to be known for that is noted while the daemon lives: the IDs of this process, which alone can say
// what their uids mean. A table by number, of atomics; a child of fork has its parent's. No allocation but
// of the table, once; no lock; errno stays; usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>

namespace urdma::stub {

// A command that has been answered, as the program wrote it, and the room for its answer.
struct Exchange {
  std::uint32_t command = 0;
  const void* body = nullptr;
  std::size_t body_bytes = 0;
  void* response = nullptr;
  std::size_t response_bytes = 0;
};

// After a success.
void note_success(int channel, const Exchange& done);

// Whether the daemon's end of the channel is closed. A daemon that dies closes one descriptor after another:
// if it does not seem to be gone, it is given a moment.
[[nodiscard]] bool is_abandoned(int channel);

// Carries out a command on such a channel, and says once on stderr what has happened. 0, or a negative errno.
[[nodiscard]] long execute_abandoned(int channel, const Exchange& wanted);

}  // namespace urdma::stub
