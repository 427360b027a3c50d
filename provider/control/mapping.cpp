// Memory that the daemon made and passed to this process, mapped.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/mapping.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace urdma::provider {

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() { unmap(); }

int Mapping::map(int fd, std::size_t bytes, Access access) {
  unmap();
  struct stat status {};
  if (::fstat(fd, &status) != 0) return errno;
  if (bytes == 0 || static_cast<std::size_t>(status.st_size) < bytes) return EPROTO;
  const int protection = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return errno;
  data_ = static_cast<std::byte*>(address);
  bytes_ = bytes;
  return 0;
}

int Mapping::map_anonymous(std::size_t bytes) {
  unmap();
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return errno;
  data_ = static_cast<std::byte*>(address);
  bytes_ = bytes;
  return 0;
}

void Mapping::unmap() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace urdma::provider
