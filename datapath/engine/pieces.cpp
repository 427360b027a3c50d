// Finding payloads and destinations, and copying between them.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/pieces.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "datapath/engine/cpu.hpp"
#include "datapath/engine/path.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::engine {

namespace {

// What a null region reads as, and what takes its writes. An engine reads the one and writes the other; no
// byte of either ever reaches a program.
std::array<std::byte, kLocalPacketBytes> zeros;
thread_local std::array<std::byte, kLocalPacketBytes> sink;

std::byte* stand_in(std::uint32_t access) {
  return (access & kAccessLocalWrite) != 0 ? sink.data() : zeros.data();
}

}  // namespace

bool resolve_range(const AccessContext& context, MemoryKey key, std::uint32_t access, std::uint64_t address,
                   std::uint32_t length, Pieces& out) {
  memory::Place place;
  if (out.count == kMostPieces) return false;
  if (!memory::permit(context.regions, key, context.who, access, address, length, place)) return false;
  Piece piece{place.address, nullptr, length, place.region};
  if (piece.is_null()) {
    if (length > kLocalPacketBytes) return false;
    piece.local = stand_in(access);
  } else {
    memory::AddressSpace* const others = out.space();
    if (others != nullptr && others != place.region->space) return false;
    if (!place.region->is_on_demand()) piece.local = place.region->space->resolve(place.address, length);
  }
  out.add(piece);
  return true;
}

bool resolve_elements(const AccessContext& context, std::span<const transport::Sge> elements,
                      std::uint32_t access, std::uint64_t offset, std::uint32_t length, Pieces& out) {
  for (const transport::Sge& element : elements) {
    if (length == 0) return true;
    if (offset >= element.length) {
      offset -= element.length;
      continue;
    }
    const auto within = static_cast<std::uint32_t>(offset);
    const std::uint32_t bytes = std::min(length, element.length - within);
    if (!resolve_range(context, element.lkey, access, element.address + within, bytes, out)) return false;
    length -= bytes;
    offset = 0;
  }
  return length == 0;
}

namespace {

// Stores 1 to 8 bytes in ascending order, and 8 aligned ones at once: programs poll on the last
// byte, or on an aligned word.
void store_tail(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 8 && reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(to))
        .store(word, std::memory_order_release);
    return;
  }
  for (std::size_t i = 0; i < bytes; ++i) {
    std::atomic_ref<std::byte>(to[i]).store(from[i], std::memory_order_release);
  }
}

// Copies so that the last bytes become visible last.
void copy_last_byte_last(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto end = reinterpret_cast<std::uintptr_t>(to) + bytes;
  const std::size_t tail = std::min<std::size_t>(bytes, (end - 1) % 8 + 1);
  std::byte held[8];
  std::memcpy(held, from + bytes - tail, tail);  // before the body: source and destination may overlap
  std::memmove(to, from, bytes - tail);
  order_copied_bytes();
  store_tail(to + bytes - tail, held, tail);
}

}  // namespace

void copy_pieces(const Pieces& from, const Pieces& to) {
  std::uint64_t left = 0;
  for (const Piece& piece : from.view()) left += piece.length;
  std::uint32_t source = 0;
  std::uint32_t source_offset = 0;
  std::uint32_t target = 0;
  std::uint32_t target_offset = 0;
  while (left > 0) {
    const Piece& a = from.items[source];
    const Piece& b = to.items[target];
    const std::uint32_t bytes = std::min(a.length - source_offset, b.length - target_offset);
    left -= bytes;
    std::byte* destination = b.local + target_offset;
    const std::byte* origin = a.local + source_offset;
    if (left == 0) {
      copy_last_byte_last(destination, origin, bytes);
    } else {
      std::memmove(destination, origin, bytes);
    }
    source_offset += bytes;
    target_offset += bytes;
    if (source_offset == a.length) ++source, source_offset = 0;
    if (target_offset == b.length) ++target, target_offset = 0;
  }
}

}  // namespace urdma::engine
