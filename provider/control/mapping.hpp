// Memory that the daemon made and passed to this process, mapped. Move-only; unmaps when destroyed.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <utility>

namespace urdma::provider {

class Mapping {
 public:
  enum class Access { kReadOnly, kReadWrite };

  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Maps the first `bytes` of `fd`, which may be closed afterwards. 0 or a positive errno; EPROTO when
  // the file is smaller than that.
  [[nodiscard]] int map(int fd, std::size_t bytes, Access access);

  // Maps `bytes` new, zero bytes of nobody's. 0 or a positive errno.
  [[nodiscard]] int map_anonymous(std::size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  void unmap();

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace urdma::provider
