// Protection domains, thread domains, and parent domains, which join the two and may bring the program's own
// allocators (ibv_alloc_parent_domain).
//
// What a program's allocators serve: the state that the provider keeps of a QP and of an extended CQ. The
// rings are not theirs: the daemon makes them, so that it need trust nobody's memory. Thread domains promise
// that calls are not concurrent; the locks are there all the same.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace urdma::provider {

struct ThreadDomain : ibv_td {
  std::atomic<std::uint32_t> users{0};  // parent domains
};

struct ProtectionDomain : ibv_pd {
  ProtectionDomain* original = nullptr;  // of a parent domain; null: it is none
  ThreadDomain* thread = nullptr;
  // The program's; null: none.
  void* (*allocate)(ibv_pd*, void*, std::size_t, std::size_t, std::uint64_t) = nullptr;
  void (*release)(ibv_pd*, void*, void*, std::uint64_t) = nullptr;
  void* allocator_context = nullptr;
  std::atomic<std::uint32_t> users{0};  // parent domains on it; of a parent domain: queues in it
};

inline ProtectionDomain& domain_of(ibv_pd* pd) { return *static_cast<ProtectionDomain*>(pd); }
inline ThreadDomain& domain_of(ibv_td* td) { return *static_cast<ThreadDomain*>(td); }

// What the program's allocators are told.
enum class ResourceType : std::uint64_t { kQueuePair = 1, kCompletionQueue = 2 };

// Takes an object back to where place() found room for it.
template <typename Object>
struct Displace {
  ProtectionDomain* parent = nullptr;  // null: none
  ResourceType type = ResourceType::kQueuePair;
  bool is_of_program = false;

  void operator()(Object* object) const {
    if (is_of_program) {
      object->~Object();
      parent->release(parent, parent->allocator_context, object, static_cast<std::uint64_t>(type));
    } else {
      delete object;
    }
    if (parent != nullptr) --parent->users;
  }
};

template <typename Object>
using Placed = std::unique_ptr<Object, Displace<Object>>;

// Makes an object where `pd`, a parent domain or not, wants it; it is a user of a parent domain. Null when
// the program's allocator has no memory. Throws what the object's constructor throws.
template <typename Object, typename... Arguments>
Placed<Object> place(ibv_pd* pd, ResourceType type, Arguments&&... arguments) {
  ProtectionDomain* parent = pd != nullptr && domain_of(pd).original != nullptr ? &domain_of(pd) : nullptr;
  void* room = IBV_ALLOCATOR_USE_DEFAULT;
  if (parent != nullptr && parent->allocate != nullptr)
    room = parent->allocate(parent, parent->allocator_context, sizeof(Object), alignof(Object),
                            static_cast<std::uint64_t>(type));
  if (room == nullptr) return {};
  const bool is_of_program = room != IBV_ALLOCATOR_USE_DEFAULT;
  auto* object = is_of_program ? new (room) Object(std::forward<Arguments>(arguments)...)
                               : new Object(std::forward<Arguments>(arguments)...);
  if (parent != nullptr) ++parent->users;
  return Placed<Object>(object, {parent, type, is_of_program});
}

}  // namespace urdma::provider
