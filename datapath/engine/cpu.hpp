// The two instructions that the engine needs of a processor and C++ has no word for. Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>

namespace urdma::engine {

// Between two looks of a spin: leaves the core to its other hardware thread, and the memory bus alone.
inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` does nothing on most cores
#endif
}

// Stores before it are seen before those behind it, also those of the instructions that libc copies with.
// On x86 that needs one of its own: `rep movsb` and non-temporal stores promise no order, and a release
// fence is no instruction there. Elsewhere a release fence orders all stores to ordinary memory.
inline void order_copied_bytes() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace urdma::engine
