// A memfd that the daemon made, sealed against a change of size, and mapped: what the daemon shares
// with its clients. Move-only; unmaps and closes when destroyed. Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "urdma/base/result.hpp"
#include "urdma/base/unique_fd.hpp"

namespace urdma::memory {

// Whether clients may map it for writing (the daemon always may).
enum class ClientAccess : std::uint8_t { kReadWrite, kReadOnly };

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // `bytes` is rounded up to whole pages; the memory is zero. `name` is for /proc only.
  [[nodiscard]] static Result<SharedMemory> create(const char* name, std::size_t bytes, ClientAccess access);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // The descriptor to pass to a client; stays this object's. -1 after close_descriptor().
  [[nodiscard]] int descriptor() const { return fd_.get(); }
  // Once the client has its copy the daemon needs none; the mapping stays.
  void close_descriptor() { fd_.reset(); }

 private:
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace urdma::memory
