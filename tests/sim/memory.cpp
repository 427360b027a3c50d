// The memory of one simulated host. See memory.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/memory.hpp"

#include <algorithm>
#include <cstring>

#include "tests/sim/check.hpp"

namespace urdma::sim {

using transport::MemoryOp;
using transport::MemoryResult;

namespace {

constexpr std::uint64_t kGuardBytes = 16;
constexpr std::uint32_t kKeyShift = 8;
constexpr std::uint64_t kFirstAddress = 0x5000'0000'0000;
constexpr std::uint64_t kRegionSpacing = std::uint64_t{1} << 34;

constexpr std::uint64_t slot_bytes(std::uint64_t length, std::uint32_t pieces) {
  return length + (pieces + 1) * 2 * kGuardBytes;
}

bool is_all_poison(std::span<const std::uint8_t> bytes) {
  // Every byte equals its successor and the first is poison: one memcmp, at its speed.
  return bytes.empty() ||
         (bytes[0] == kPoison && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace

bool Region::is_clean(std::uint64_t begin, std::uint64_t end) const {
  return is_all_poison(std::span(bytes).subspan(begin, end - begin));
}

Region& Memory::add(std::uint32_t access, std::uint64_t bytes) {
  auto region = std::make_unique<Region>();
  const auto index = static_cast<std::uint32_t>(regions_.size());
  region->key = MemoryKey{((index + 1) << kKeyShift) | random_.between32(0, 255)};
  region->access = access;
  region->address = kFirstAddress + index * kRegionSpacing + random_.below(1U << 20);
  region->bytes.assign(bytes, kPoison);
  regions_.push_back(std::move(region));
  return *regions_.back();
}

MemoryResult Memory::locate(MemoryKey key, std::uint32_t access, std::uint64_t address, std::uint64_t bytes,
                            std::uint8_t*& at) const {
  const std::uint32_t index = (key.value >> kKeyShift) - 1;
  if (index >= regions_.size() || regions_[index]->key != key) return MemoryResult::kProtection;
  Region& region = *regions_[index];
  if ((region.access & access) != access) return MemoryResult::kProtection;
  const std::uint64_t size = region.pretended_bytes != 0 ? region.pretended_bytes : region.bytes.size();
  const std::uint64_t offset = address - region.address;
  if (bytes > size || offset > size - bytes) return MemoryResult::kProtection;
  if (region.is_faulty) return MemoryResult::kFault;
  at = region.bytes.data() + (region.pretended_bytes != 0 ? 0 : offset);
  return MemoryResult::kOk;
}

MemoryResult Memory::gather(const transport::Payload& payload, std::uint8_t* out) const {
  std::uint8_t* at = nullptr;
  if (payload.kind == transport::Payload::Kind::kRegion) {
    if (payload.length == 0) return MemoryResult::kOk;
    const MemoryResult result = locate(payload.key, kAccessRemoteRead, payload.address, payload.length, at);
    if (result == MemoryResult::kOk) std::memcpy(out, at, payload.length);
    return result;
  }
  std::uint64_t skip = payload.offset;
  std::uint32_t left = payload.length;
  for (const transport::Sge& element : payload.elements) {
    if (left == 0) break;
    if (skip >= element.length) {
      skip -= element.length;
      continue;
    }
    const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(element.length - skip, left));
    const MemoryResult result = locate(element.lkey, 0, element.address + skip, part, at);
    if (result != MemoryResult::kOk) return result;
    std::memcpy(out, at, part);
    out += part;
    left -= part;
    skip = 0;
  }
  require(left == 0, "a packet's payload reaches {} bytes beyond the request's elements", left);
  return MemoryResult::kOk;
}

MemoryResult Memory::scatter(const MemoryOp& op, std::span<const std::uint8_t> payload) const {
  std::uint64_t skip = op.offset;
  for (const transport::Sge& element : op.elements) {
    if (payload.empty()) break;
    if (skip >= element.length) {
      skip -= element.length;
      continue;
    }
    const auto part = std::min<std::uint64_t>(element.length - skip, payload.size());
    std::uint8_t* at = nullptr;
    const MemoryResult result = locate(element.lkey, kAccessLocalWrite, element.address + skip, part, at);
    if (result != MemoryResult::kOk) return result;
    std::memcpy(at, payload.data(), part);
    payload = payload.subspan(part);
    skip = 0;
  }
  require(payload.empty(), "a scatter operation reaches {} bytes beyond its elements", payload.size());
  return MemoryResult::kOk;
}

MemoryResult Memory::execute(const MemoryOp& op, std::span<const std::uint8_t> payload,
                             std::uint64_t& original) {
  std::uint8_t* at = nullptr;
  MemoryResult result = MemoryResult::kOk;
  switch (op.kind) {
    case MemoryOp::Kind::kNone:
      fail_run("an operation of kind kNone was executed");
    case MemoryOp::Kind::kNothing:
      return MemoryResult::kOk;
    case MemoryOp::Kind::kCheck:
      return op.check_bytes == 0 ? result : locate(op.key, op.access, op.address, op.check_bytes, at);
    case MemoryOp::Kind::kWrite:
      require(op.length == payload.size(), "WRITE of {} bytes, payload {}", op.length, payload.size());
      require(op.length <= op.check_bytes, "WRITE of {} bytes, checked {}", op.length, op.check_bytes);
      if (op.check_bytes != 0) result = locate(op.key, op.access, op.address, op.check_bytes, at);
      if (result == MemoryResult::kOk && op.length != 0) std::memcpy(at, payload.data(), op.length);
      return result;
    case MemoryOp::Kind::kScatter: {
      if (!op.has_value) {
        require(op.length == payload.size(), "scatter of {} bytes, payload {}", op.length, payload.size());
        return scatter(op, payload);
      }
      std::array<std::uint8_t, sizeof(op.value)> bytes{};
      std::memcpy(bytes.data(), &op.value, sizeof(op.value));
      return scatter(op, bytes);
    }
    case MemoryOp::Kind::kAtomic: {
      result = locate(op.key, op.access, op.address, sizeof(original), at);
      if (result != MemoryResult::kOk) return result;
      std::memcpy(&original, at, sizeof(original));
      std::uint64_t value = original + op.swap_or_add;
      if (op.is_compare_swap) value = original == op.compare ? op.swap_or_add : original;
      std::memcpy(at, &value, sizeof(value));
      return result;
    }
  }
  return result;
}

void Buffer::write(std::span<const std::uint8_t> message) const {
  for (std::uint32_t i = 0; i < piece_count; ++i) {
    std::copy_n(message.begin(), pieces[i].length,
                region->bytes.begin() + static_cast<std::ptrdiff_t>(pieces[i].offset));
    message = message.subspan(pieces[i].length);
  }
}

std::optional<std::uint64_t> Buffer::difference(std::span<const std::uint8_t> message) const {
  std::uint64_t done = 0;
  for (std::uint32_t i = 0; i < piece_count && done < message.size(); ++i) {
    const std::uint64_t part = std::min<std::uint64_t>(pieces[i].length, message.size() - done);
    const std::uint8_t* bytes = region->bytes.data() + pieces[i].offset;
    if (std::memcmp(bytes, message.data() + done, part) != 0)
      return done + static_cast<std::uint64_t>(
                        std::mismatch(bytes, bytes + part, message.data() + done).first - bytes);
    done += part;
  }
  if (done < message.size()) return done;
  return std::nullopt;
}

void Buffer::append_elements(std::vector<transport::Sge>& elements) const {
  for (std::uint32_t i = 0; i < piece_count; ++i)
    elements.push_back({region->address + pieces[i].offset, pieces[i].length, region->key});
}

std::optional<std::uint64_t> BufferRing::place(std::uint64_t bytes) const {
  const std::uint64_t size = region_.bytes.size();
  if (live_.empty()) return bytes <= size ? std::optional<std::uint64_t>(0) : std::nullopt;
  const std::uint64_t tail = live_.front();
  if (head_ <= tail) return tail - head_ >= bytes && head_ != tail ? std::optional(head_) : std::nullopt;
  if (size - head_ >= bytes) return head_;
  return tail >= bytes ? std::optional<std::uint64_t>(0) : std::nullopt;
}

bool BufferRing::fits(std::uint64_t length, std::uint32_t pieces) const {
  return place(slot_bytes(length, pieces)).has_value();
}

std::optional<Buffer> BufferRing::allocate(std::uint64_t length, std::uint32_t pieces) {
  require(pieces <= kMaxPieces, "{} pieces", pieces);
  const std::uint64_t bytes = slot_bytes(length, pieces);
  const std::optional<std::uint64_t> begin = place(bytes);
  if (!begin) return std::nullopt;
  Buffer buffer{.region = &region_,
                .begin = *begin,
                .end = *begin + bytes,
                .length = length,
                .pieces = {},
                .piece_count = pieces};
  std::uint64_t at = *begin + kGuardBytes;
  std::uint64_t left = length;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    const std::uint64_t part =
        i + 1 == pieces ? left : random_.between(0, std::min(left, 2 * length / pieces));
    at += random_.below(kGuardBytes);
    buffer.pieces[i] = {at, static_cast<std::uint32_t>(part)};
    at += part + kGuardBytes;
    left -= part;
  }
  head_ = buffer.end;
  live_.push_back(*begin);
  return buffer;
}

void BufferRing::release(const Buffer& buffer) {
  require(!live_.empty() && live_.front() == buffer.begin, "buffers are released out of order");
  live_.pop_front();
  for (std::uint32_t i = 0; i < buffer.piece_count; ++i)
    std::memset(region_.bytes.data() + buffer.pieces[i].offset, kPoison, buffer.pieces[i].length);
  require(!is_guarded_ || region_.is_clean(buffer.begin, buffer.end),
          "stray write around the buffer at {:#x} of region {:#x}", buffer.begin, region_.key.value);
}

void BufferRing::require_clean() const {
  require(live_.empty(), "{} buffers of region {:#x} are still out", live_.size(), region_.key.value);
  require(!is_guarded_ || region_.is_clean(0, region_.bytes.size()), "stray write in region {:#x}",
          region_.key.value);
}

std::span<const std::uint8_t> message_bytes(std::uint64_t pattern, std::uint64_t length) {
  static std::vector<std::uint64_t> words;
  const std::uint64_t count = (length + 7) / 8;
  if (words.size() < count) words.resize(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t mixed = (pattern + i) * 0x9E3779B97F4A7C15ULL;
    words[i] = mixed ^ (mixed >> 32);
  }
  return {reinterpret_cast<const std::uint8_t*>(words.data()), length};
}

}  // namespace urdma::sim
