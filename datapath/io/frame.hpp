// Frames of one segment: from the pool and back, for any thread. What a frame holds passes from thread to
// thread by the rings of DPDK's pool and drivers, whose code TSan does not see: it is told here, frame by
// frame.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <rte_mbuf.h>

#include <cstring>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace urdma::io {

// Before a thread lets go of a frame, and after one has got it.
inline void note_handed_on([[maybe_unused]] rte_mbuf* frame) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(frame);
#endif
}
inline void note_taken([[maybe_unused]] rte_mbuf* frame) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(frame);
#endif
}

// An empty one; null when the pool is used up.
inline rte_mbuf* new_frame(rte_mempool* pool) {
  rte_mbuf* frame = rte_mbuf_raw_alloc(pool);
  if (frame == nullptr) return nullptr;
  note_taken(frame);
  rte_pktmbuf_reset(frame);
  return frame;
}

// Null is nothing to free.
inline void free_frame(rte_mbuf* frame) {
  rte_mbuf* own = frame != nullptr ? rte_pktmbuf_prefree_seg(frame) : nullptr;
  if (own == nullptr) return;
  note_handed_on(own);
  rte_mbuf_raw_free(own);
}

// The same bytes; null when the pool is used up.
inline rte_mbuf* copy_frame(const rte_mbuf* frame, rte_mempool* pool) {
  rte_mbuf* copy = new_frame(pool);
  if (copy == nullptr) return nullptr;
  char* bytes = rte_pktmbuf_append(copy, rte_pktmbuf_data_len(frame));
  if (bytes == nullptr) {
    free_frame(copy);
    return nullptr;
  }
  std::memcpy(bytes, rte_pktmbuf_mtod(frame, const char*), rte_pktmbuf_data_len(frame));
  return copy;
}

}  // namespace urdma::io
