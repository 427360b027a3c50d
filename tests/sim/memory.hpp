// The memory of one simulated host: regions with keys, access flags and bounds, and buffers cut out of
// them with guards around, so that a byte written where none belongs is found.
//
// Owner: a Host. Addresses are invented; nothing of the process's own is reachable through a key.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "datapath/transport/types.hpp"
#include "tests/sim/random.hpp"

namespace urdma::sim {

inline constexpr std::uint8_t kPoison = 0xA5;  // stands in every byte that belongs to no buffer
inline constexpr std::uint32_t kMaxPieces = 8;

struct Region {
  MemoryKey key;
  std::uint32_t access = 0;
  std::uint64_t address = 0;
  std::vector<std::uint8_t> bytes;
  // Not 0: the region says that it is so large, and every packet's bytes are at its start.
  std::uint64_t pretended_bytes = 0;
  bool is_faulty = false;  // every use of it answers MemoryResult::kFault

  [[nodiscard]] bool is_clean(std::uint64_t begin, std::uint64_t end) const;  // all poison
};

class Memory {
 public:
  explicit Memory(Random& random) : random_(random) {}

  Region& add(std::uint32_t access, std::uint64_t bytes);

  // The bytes of [address, address + bytes), judged as a daemon judges them.
  [[nodiscard]] transport::MemoryResult locate(MemoryKey key, std::uint32_t access, std::uint64_t address,
                                               std::uint64_t bytes, std::uint8_t*& at) const;
  // Copies a packet's payload from elements or from a region to `out`.
  [[nodiscard]] transport::MemoryResult gather(const transport::Payload& payload, std::uint8_t* out) const;
  // Carries out an operation with the packet's payload.
  [[nodiscard]] transport::MemoryResult execute(const transport::MemoryOp& op,
                                                std::span<const std::uint8_t> payload,
                                                std::uint64_t& original);

 private:
  [[nodiscard]] transport::MemoryResult scatter(const transport::MemoryOp& op,
                                                std::span<const std::uint8_t> payload) const;

  Random& random_;
  std::vector<std::unique_ptr<Region>> regions_;
};

// Bytes for one message in a region, in up to kMaxPieces pieces with guards between them.
struct Buffer {
  struct Piece {
    std::uint64_t offset = 0;  // in the region
    std::uint32_t length = 0;
  };

  Region* region = nullptr;
  std::uint64_t begin = 0;  // of the slot, guards included
  std::uint64_t end = 0;
  std::uint64_t length = 0;
  std::array<Piece, kMaxPieces> pieces{};
  std::uint32_t piece_count = 0;

  [[nodiscard]] bool is_set() const { return region != nullptr; }
  [[nodiscard]] std::uint64_t address() const { return region->address + pieces[0].offset; }
  void write(std::span<const std::uint8_t> message) const;
  // Offset of the first byte that differs from `message`; nothing if all are equal.
  [[nodiscard]] std::optional<std::uint64_t> difference(std::span<const std::uint8_t> message) const;
  void append_elements(std::vector<transport::Sge>& elements) const;
};

// Hands out buffers of one region in a ring: they are released in the order in which they were made.
class BufferRing {
 public:
  BufferRing(Region& region, Random& random) : region_(region), random_(random) {}

  [[nodiscard]] bool fits(std::uint64_t length, std::uint32_t pieces) const;
  // A buffer of `length` bytes in `pieces` pieces; nothing if there is no room now.
  [[nodiscard]] std::optional<Buffer> allocate(std::uint64_t length, std::uint32_t pieces);
  // Poisons the buffer, and requires that nothing around it was touched.
  void release(const Buffer& buffer);
  // From now on bytes around the buffers may be anything: a peer writes where it likes.
  void set_unguarded() { is_guarded_ = false; }
  // Requires that all of the region is poison, when no buffer is out.
  void require_clean() const;
  [[nodiscard]] bool is_empty() const { return live_.empty(); }
  [[nodiscard]] Region& region() const { return region_; }

 private:
  [[nodiscard]] std::optional<std::uint64_t> place(std::uint64_t bytes) const;

  Region& region_;
  Random& random_;
  std::uint64_t head_ = 0;
  bool is_guarded_ = true;
  std::deque<std::uint64_t> live_;  // where the slots begin, oldest first
};

// The bytes of message `pattern`: a span of a scratch area, valid until the next call.
[[nodiscard]] std::span<const std::uint8_t> message_bytes(std::uint64_t pattern, std::uint64_t length);

}  // namespace urdma::sim
