// A payload's or a destination's place in memory: pieces of programs' address spaces, each of which is
// mapped here, or not.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/memory/address_space.hpp"
#include "datapath/memory/region_table.hpp"
#include "datapath/transport/types.hpp"

namespace urdma::engine {

inline constexpr std::uint32_t kMostPieces = 32;  // Limits::max_sge

struct Piece {
  std::uint64_t address = 0;   // in the program; 0 for memory of the daemon's own
  std::byte* local = nullptr;  // here; null: only a copier reaches it
  std::uint32_t length = 0;
  memory::Region* region = nullptr;  // null: memory of the daemon's own

  // Of a null region: zeros, or where nothing is kept.
  [[nodiscard]] bool is_null() const { return region != nullptr && region->space == nullptr; }
};

struct Pieces {
  std::array<Piece, kMostPieces> items;
  std::uint32_t count = 0;
  bool is_mapped = true;  // all of them are

  void clear() {
    count = 0;
    is_mapped = true;
  }
  void add(const Piece& piece) {
    items[count++] = piece;
    is_mapped = is_mapped && piece.local != nullptr;
  }
  // The program's memory that they are of; null if they are of none.
  [[nodiscard]] memory::AddressSpace* space() const {
    for (const Piece& piece : view()) {
      if (piece.region != nullptr && piece.region->space != nullptr) return piece.region->space;
    }
    return nullptr;
  }
  [[nodiscard]] std::span<const Piece> view() const { return {items.data(), count}; }
};

// Whose keys are looked up, and where.
struct AccessContext {
  const memory::RegionTable& regions;
  memory::Accessor who;
};

// The piece for [address, address + length) under `key`; false if access is denied. `length` is not 0, and at
// most kLocalPacketBytes. The pieces of one list are of one program: a copier reaches one.
[[nodiscard]] bool resolve_range(const AccessContext& context, MemoryKey key, std::uint32_t access,
                                 std::uint64_t address, std::uint32_t length, Pieces& out);

// The pieces for bytes [offset, offset + length) of a list of elements; false if access is denied.
[[nodiscard]] bool resolve_elements(const AccessContext& context, std::span<const transport::Sge> elements,
                                    std::uint32_t access, std::uint64_t offset, std::uint32_t length,
                                    Pieces& out);

// Copies all of `from` to the start of `to`, all mapped; the bytes of `to` become visible with the last
// (up to 8, as one store where aligned) behind the others.
void copy_pieces(const Pieces& from, const Pieces& to);

}  // namespace urdma::engine
