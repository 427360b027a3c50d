// What the kernel stand-in offers to the provider beside the kernel's own interface. Both are in the
// program; the provider finds the function by dlsym, and does without where the stand-in is another.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

namespace urdma::abi {

// ibv_import_device asks the kernel for an event channel of its own, after the provider has opened the
// context: the calling thread's next such request gets `fd`, which then belongs to libibverbs. -1: a new
// channel.
using OfferEventChannel = void (*)(int fd);
inline constexpr const char* kOfferEventChannel = "urdma_offer_event_channel";

}  // namespace urdma::abi
