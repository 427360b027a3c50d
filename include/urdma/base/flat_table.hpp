// A fixed table from 32-bit keys to pointers: open addressing, half full at most, nothing allocated after
// construction. One thread at a time; it owns nothing that it points to.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace urdma {

template <typename T>
class FlatTable {
 public:
  explicit FlatTable(std::uint32_t capacity)
      : slots_(std::bit_ceil(std::uint64_t{capacity} * 2 + 2)),
        mask_(static_cast<std::uint32_t>(slots_.size() - 1)),
        capacity_(capacity) {}

  [[nodiscard]] std::uint32_t size() const { return size_; }

  [[nodiscard]] T* find(std::uint32_t key) const {
    for (std::uint32_t i = home(key); slots_[i].value != nullptr; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].value;
    }
    return nullptr;
  }

  // False when the key is taken or the table is full.
  [[nodiscard]] bool insert(std::uint32_t key, T& value) {
    if (size_ == capacity_) return false;
    std::uint32_t i = home(key);
    for (; slots_[i].value != nullptr; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return false;
    }
    slots_[i] = {key, &value};
    ++size_;
    return true;
  }

  void erase(std::uint32_t key) {
    std::uint32_t hole = home(key);
    while (slots_[hole].value != nullptr && slots_[hole].key != key) hole = (hole + 1) & mask_;
    if (slots_[hole].value == nullptr) return;
    close_up(hole);
    --size_;
  }

 private:
  struct Slot {
    std::uint32_t key = 0;
    T* value = nullptr;
  };

  [[nodiscard]] std::uint32_t home(std::uint32_t key) const {
    return (key * 2654435769U >> 7) & mask_;  // Fibonacci hashing: neighbouring keys spread
  }

  // Moves later entries of the run into the hole, so that no search ends early at it.
  void close_up(std::uint32_t hole) {
    for (std::uint32_t i = (hole + 1) & mask_; slots_[i].value != nullptr; i = (i + 1) & mask_) {
      const std::uint32_t from_home = (i - home(slots_[i].key)) & mask_;
      const std::uint32_t from_hole = (i - hole) & mask_;
      if (from_home < from_hole) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole] = {};
  }

  std::vector<Slot> slots_;
  std::uint32_t mask_;
  std::uint32_t capacity_;
  std::uint32_t size_ = 0;
};

}  // namespace urdma
